#include "gather/instances.h"
#include "gather/layout.h"
#include "launch/launcher.h"

namespace convt {

void launch_thin_gather(const ConvTProblem& problem, const Plan& plan, const ThinGatherTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  instance_of(kThinGatherInstances, tile.instance, problem, plan);
  gather::GatherParams params{};
  check_layout(make_thin_gather_layout(problem, tile, &params), params, plan);
  const bool forward = problem.direction == Direction::kForward;
  params.source = static_cast<const float*>(forward ? pointers.x : pointers.y);
  params.result = static_cast<float*>(forward ? pointers.y : pointers.x);
  params.weight = static_cast<const float*>(pointers.w);
  params.bias = forward ? static_cast<const float*>(pointers.bias) : nullptr;
  params.result_on_vectors = is_aligned(params.result, 16);
  launch_kernel(gather::kernel_of(tile.instance), grid_of(plan), stream, params);
}

void launch_thin_direct(const ConvTProblem& problem, const Plan& plan, const ThinDirectTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  instance_of(kThinDirectInstances, tile.instance, problem, plan);
  const void* kernel = gather::direct_kernel_of(tile.instance);
  if (problem.direction == Direction::kGradWeight) {
    gather::DirectWeightParams params{};
    check_layout(make_thin_direct_weight_layout(problem, &params), params, plan);
    params.x = pointers.x;
    params.gy = pointers.y;
    params.weight = pointers.w;
    return launch_kernel(kernel, grid_of(plan), stream, params);
  }
  gather::DirectParams params{};
  check_layout(make_thin_direct_layout(problem, &params) && params.terms == tile.terms, params, plan);
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.result = forward ? pointers.y : pointers.x;
  params.weight = pointers.w;
  params.bias = forward ? pointers.bias : nullptr;
  launch_kernel(kernel, grid_of(plan), stream, params);
}

}  // namespace convt
