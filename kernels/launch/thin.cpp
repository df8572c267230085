#include <stdexcept>
#include <string>

#include "launch/engines.h"
#include "launch/kernel_table.h"
#include "plan/thin_instances.h"
#include "plan/thin_layout.h"
#include "thin/instances.h"
#include "thin/params.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_INSTANCES, const void*)

void launch_thin(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  if (plan.thin_depthwise.rows > 0) return launch_thin_depthwise(problem, plan, pointers, stream);
  if (plan.thin_channels_last.rows > 0) return launch_thin_channels_last(problem, plan, pointers, stream);
  if (plan.thin_direct.terms > 0) return launch_thin_direct(problem, plan, pointers, stream);
  if (plan.thin_gather.warps_channels > 0) return launch_thin_gather(problem, plan, pointers, stream);
  if (plan.thin_streamed.warps_channels > 0) return launch_thin_streamed(problem, plan, pointers, stream);
  if (plan.thin_outer_weight.tile_h > 0) return launch_thin_outer_weight(problem, plan, pointers, stream);
  if (plan.thin_grad_weight.strip > 0) return launch_thin_grad_weight(problem, plan, pointers, stream);
  if (problem.direction == Direction::kGradInput) return launch_thin_grad_input(problem, plan, pointers, stream);
  if (plan.thin.instance < 0 || plan.thin.instance >= kNumThinInstances) {
    throw std::runtime_error("convt_ext: no thin kernel instance number " + std::to_string(plan.thin.instance));
  }
  const ThinInstance& instance = kThinInstances[plan.thin.instance];
  if (instance.dtype != problem.dtype) {
    throw std::runtime_error(std::string("convt_ext: ") + instance.name + " does not compute in " +
                             name_of(problem.dtype));
  }
  thin::Params params{};
  const bool legal = make_thin_layout(problem, plan.thin, instance.outputs, instance.positions, &params);
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
  launch_kernel(thin::kKernels[plan.thin.instance](), grid_of(plan), stream, params);
}

}  // namespace convt
