#include "launch/families.h"
#include "pointwise/layout.h"

namespace convt {

CONVT_KERNEL_TABLE(pointwise, CONVT_POINTWISE_INSTANCES, const void*)

void launch_pointwise(const ConvTProblem& problem, const Plan& plan, const PointwiseTile& tile,
                      const Pointers& pointers, cudaStream_t stream) {
  instance_of(kPointwiseInstances, tile.instance, problem, plan);
  pointwise::Params params{};
  check_layout(make_pointwise_layout(problem, &params), params, plan);
  params.source = static_cast<const float*>(pointers.x);
  params.weight = static_cast<const float*>(pointers.w);
  params.bias = static_cast<const float*>(pointers.bias);
  params.result = static_cast<float*>(pointers.y);
  launch_kernel(pointwise::kKernels[tile.instance](), grid_of(plan), stream, params);
}

}  // namespace convt
