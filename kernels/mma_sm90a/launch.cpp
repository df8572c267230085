#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "mma_sm90a/instances.h"
#include "mma_sm90a/layout.h"
#include "mma_sm90a/params.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(mma_sm90a, CONVT_MMA_INSTANCES, const void*)

void launch_mma(const ConvTProblem& problem, const Plan& plan, const MmaTile& tile, const Pointers& pointers,
                cudaStream_t stream) {
  if (tile.instance < 0 || tile.instance >= kNumMmaInstances) {
    throw std::runtime_error("convt_ext: no mma kernel instance number " + std::to_string(tile.instance));
  }
  const MmaInstance& instance = kMmaInstances[tile.instance];
  mma_sm90a::Params params{};
  const bool legal = instance.dtype == problem.dtype && make_mma_layout(problem, tile, &params);
  if (!legal || params.threads != plan.threads || params.shared_bytes != plan.shared_bytes ||
      params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + instance.name + " is of another problem");
  }
  params.source = pointers.x;
  params.weight = pointers.w;
  params.bias = pointers.bias;
  params.result = pointers.y;
  // The source may begin anywhere; then its columns are copied one by one into the same places.
  if (!is_aligned(params.source, 16)) copy_elements(&params);
  if (!is_aligned(params.result, 16)) {
    throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  }
  launch_kernel(mma_sm90a::kKernels[tile.instance](), grid_of(plan), stream, params);
}

}  // namespace convt
