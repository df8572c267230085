#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "plan/kernel_table.h"
#include "thin/instances.h"
#include "thin/layout.h"
#include "thin/params.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_INSTANCES, const void*)

void launch_thin(const ConvTProblem& problem, const Plan& plan, const ThinTile& tile, const Pointers& pointers,
                 cudaStream_t stream) {
  if (tile.instance < 0 || tile.instance >= kNumThinInstances) {
    throw std::runtime_error("convt_ext: no thin kernel instance number " + std::to_string(tile.instance));
  }
  const ThinInstance& instance = kThinInstances[tile.instance];
  if (instance.dtype != problem.dtype) {
    throw std::runtime_error(std::string("convt_ext: ") + instance.name + " does not compute in " +
                             name_of(problem.dtype));
  }
  thin::Params params{};
  const bool legal = make_thin_layout(problem, tile, instance.outputs, instance.positions, &params);
  if (!legal || params.threads != plan.threads || params.shared_bytes != plan.shared_bytes ||
      params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + instance.name + " is of another problem");
  }
  params.source = pointers.x;
  params.weight = pointers.w;
  params.bias = pointers.bias;
  params.result = pointers.y;
  // An operand may begin anywhere; then its columns are copied one by one into the same places.
  if (params.load_mode == ThinLoad::kVectors && !is_aligned(params.source, params.vector_bytes)) {
    params.load_mode = ThinLoad::kElements;
    params.vector_bytes = static_cast<int32_t>(element_bytes(problem.dtype));
  }
  if (!is_aligned(params.result, 16)) {
    throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  }
  launch_kernel(thin::kKernels[tile.instance](), grid_of(plan), stream, params);
}

}  // namespace convt
