#include "plan/thin_streamed.h"

#include <stdexcept>
#include <string>

#include "launch/engines.h"
#include "launch/kernel_table.h"
#include "plan/thin_instances.h"
#include "thin/instances.h"
#include "thin/streamed_params.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_STREAMED_INSTANCES, const void*)

void launch_thin_streamed(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                          cudaStream_t stream) {
  const int32_t index = plan.thin_streamed.instance;
  if (index < 0 || index >= kNumThinStreamedInstances || kThinStreamedInstances[index].dtype != problem.dtype ||
      kThinStreamedInstances[index].direction != problem.direction) {
    throw std::runtime_error("convt_ext: no kernel of streamed sources number " + std::to_string(index) + " computes " +
                             name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  thin::StreamedParams params{};
  if (!make_thin_streamed_layout(problem, plan.thin_streamed, &params) || params.threads != plan.threads ||
      params.shared_bytes != plan.shared_bytes || params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  const bool forward = problem.direction == Direction::kForward;
  params.source = static_cast<const float*>(forward ? pointers.x : pointers.y);
  params.result = static_cast<float*>(forward ? pointers.y : pointers.x);
  params.weight = static_cast<const float*>(pointers.w);
  params.bias = forward ? static_cast<const float*>(pointers.bias) : nullptr;
  params.result_on_vectors = is_aligned(params.result, 16);
  void* arguments[] = {&params};
  launch_kernel(thin::kKernels[index](), plan, arguments, stream);
}

}  // namespace convt
