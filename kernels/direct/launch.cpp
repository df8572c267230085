#include "direct/instances.h"
#include "direct/layout.h"
#include "launch/launcher.h"

namespace convt {

void launch_thin_direct(const ConvTProblem& problem, const Plan& plan, const ThinDirectTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  instance_of(kThinDirectInstances, tile.instance, problem, plan);
  const void* kernel = direct::kernel_of(tile.instance);
  if (problem.direction == Direction::kGradWeight) {
    direct::DirectWeightParams params{};
    check_layout(make_thin_direct_weight_layout(problem, &params), params, plan);
    params.x = pointers.x;
    params.gy = pointers.y;
    params.weight = pointers.w;
    return launch_kernel(kernel, grid_of(plan), stream, params);
  }
  direct::DirectParams params{};
  check_layout(make_thin_direct_layout(problem, &params) && params.terms == tile.terms, params, plan);
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.result = forward ? pointers.y : pointers.x;
  params.weight = pointers.w;
  params.bias = forward ? pointers.bias : nullptr;
  launch_kernel(kernel, grid_of(plan), stream, params);
}

}  // namespace convt
