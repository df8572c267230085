#include "plan/mma_grad_weight.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/engines.h"
#include "launch/kernel_table.h"
#include "launch/reduce.h"
#include "launch/thin_weight_params.h"
#include "mma_sm90a/grad_weight_params.h"
#include "mma_sm90a/instances.h"

namespace convt {

CONVT_KERNEL_TABLE(mma_sm90a, CONVT_MMA_GRAD_WEIGHT_INSTANCES, const void*)

void launch_mma_grad_weight(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                            cudaStream_t stream) {
  const int32_t index = plan.mma_grad_weight.instance;
  if (index < 0 || index >= kNumMmaGradWeightInstances || kMmaGradWeightInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no mma kernel instance number " + std::to_string(index) + " computes " +
                             name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  mma_sm90a::GradWeightParams params{};
  const bool legal = make_mma_grad_weight_layout(problem, plan.mma_grad_weight, &params.layout);
  if (!legal || params.layout.threads != plan.threads || params.layout.shared_bytes != plan.shared_bytes ||
      params.layout.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  fill_thin_weight_params(problem, params.layout, params.layout.pitches, params.layout.loaders, pointers, &params);
  params.by_step_columns = Divisor::of(2 * params.layout.next_pixels * problem.w.stride);
  void* arguments[] = {&params};
  launch_kernel(mma_sm90a::kKernels[index](), plan, arguments, stream);
  const int64_t size[4] = {problem.c_in, params.group_co, problem.h.kernel, problem.w.kernel};
  launch_add_slabs(problem.dtype, pointers.workspace, params.chunks, size, problem.w_stride, pointers.w, stream);
}

}  // namespace convt
