#include "plan/thin_direct.h"

#include <stdexcept>
#include <string>

#include "launch/engines.h"
#include "launch/kernel_table.h"
#include "thin/direct_params.h"
#include "thin/instances.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_DIRECT_INSTANCES, const void*)

void launch_thin_direct(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = plan.thin_direct.instance;
  if (index < 0 || index >= kNumThinDirectInstances || kThinDirectInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no kernel of small layers number " + std::to_string(index) + " computes in " +
                             name_of(problem.dtype));
  }
  thin::DirectParams params{};
  if (!make_thin_direct_layout(problem, &params) || params.num_blocks != plan.num_blocks ||
      params.terms != plan.thin_direct.terms) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.result = forward ? pointers.y : pointers.x;
  params.weight = pointers.w;
  params.bias = forward ? pointers.bias : nullptr;
  void* arguments[] = {&params};
  launch_kernel(thin::kKernels[index](), plan, arguments, stream);
}

}  // namespace convt
