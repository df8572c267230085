#include "reduce/launch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "depthwise/instances.h"
#include "depthwise/layout.h"
#include "depthwise/params.h"
#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(depthwise, CONVT_THIN_DEPTHWISE_INSTANCES, const void*)

void launch_thin_depthwise(const ConvTProblem& problem, const Plan& plan, const ThinDepthwiseTile& tile,
                           const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumThinDepthwiseInstances) {
    throw std::runtime_error("convt_ext: no depthwise kernel instance number " + std::to_string(index));
  }
  const ThinDepthwiseInstance& instance = kThinDepthwiseInstances[index];
  depthwise::DepthwiseParams params{};
  if (!make_thin_depthwise_layout(problem, instance, tile.rows, &params) || params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  const bool of_weight = problem.direction == Direction::kGradWeight;
  params.x = pointers.x;
  params.y = pointers.y;
  params.weight = of_weight ? nullptr : pointers.w;
  params.bias = pointers.bias;
  params.slabs = of_weight ? static_cast<float*>(pointers.workspace) : nullptr;
  std::copy_n(problem.x_stride, 4, params.x_stride);
  std::copy_n(problem.y_stride, 4, params.y_stride);
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  const int32_t columns = depthwise_columns(problem.dtype, problem.direction);
  params.x_vectors = has_vectors(pointers.x, problem.x_stride, 3, columns / instance.stride, problem.dtype);
  params.y_vectors = has_vectors(pointers.y, problem.y_stride, 3, columns, problem.dtype);
  launch_kernel(depthwise::kKernels[index](), grid_of(plan), stream, params);
  if (!of_weight) return;
  const int64_t size[4] = {problem.c_in, 1, problem.h.kernel, problem.w.kernel};
  launch_add_slabs(problem.dtype, pointers.workspace, problem.batch * params.chunks * params.strips, size,
                   problem.w_stride, pointers.w, stream);
}

}  // namespace convt
