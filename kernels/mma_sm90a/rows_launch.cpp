#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "mma_sm90a/instances.h"
#include "mma_sm90a/params.h"
#include "mma_sm90a/rows_layout.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(mma_sm90a, CONVT_MMA_ROWS_INSTANCES, const void*)

void launch_mma_rows(const ConvTProblem& problem, const Plan& plan, const MmaRowsTile& tile, const Pointers& pointers,
                     cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumMmaRowsInstances || kMmaRowsInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no mma kernel of whole rows number " + std::to_string(index) +
                             " computes in " + name_of(problem.dtype));
  }
  mma_sm90a::Params params{};
  const bool legal = make_mma_rows_layout(problem, tile, &params);
  if (!legal || params.threads != plan.threads || params.shared_bytes != plan.shared_bytes ||
      params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  params.source = pointers.x;
  params.weight = pointers.w;
  params.bias = pointers.bias;
  params.result = pointers.y;
  if (!is_aligned(params.result, 16)) {
    throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  }
  // The source may begin anywhere; then its columns are loaded one by one.
  if (!is_aligned(params.source, 4 * element_bytes(problem.dtype))) params.vector = 1;
  launch_kernel(mma_sm90a::kKernels[index](), grid_of(plan), stream, params);
}

}  // namespace convt
