#include <cstddef>

#include "launch/launcher.h"
#include "streamed/instances.h"
#include "streamed/layout.h"

namespace convt {
namespace {

// Launches kernel_of(tile.instance), a kernel of `instances`, with the layout that `make_layout` computes.
template <typename Tile, typename Layout, typename Instance, size_t kCount>
void launch_tiled(const ConvTProblem& problem, const Plan& plan, const Tile& tile,
                  bool (*make_layout)(const ConvTProblem&, const Tile&, Layout*), const Instance (&instances)[kCount],
                  const void* (*kernel_of)(int32_t), const Pointers& pointers, cudaStream_t stream) {
  instance_of(instances, tile.instance, problem, plan);
  streamed::TiledParams<Layout> params{};
  check_layout(make_layout(problem, tile, &params), params, plan);
  const bool forward = problem.direction == Direction::kForward;
  params.source = static_cast<const float*>(forward ? pointers.x : pointers.y);
  params.result = static_cast<float*>(forward ? pointers.y : pointers.x);
  params.weight = static_cast<const float*>(pointers.w);
  params.bias = forward ? static_cast<const float*>(pointers.bias) : nullptr;
  params.result_on_vectors = is_aligned(params.result, 16);
  launch_kernel(kernel_of(tile.instance), grid_of(plan), stream, params);
}

}  // namespace

void launch_thin_gather(const ConvTProblem& problem, const Plan& plan, const ThinGatherTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  launch_tiled(problem, plan, tile, make_thin_gather_layout, kThinGatherInstances, streamed::gather_kernel_of, pointers,
               stream);
}

void launch_thin_streamed(const ConvTProblem& problem, const Plan& plan, const ThinStreamedTile& tile,
                          const Pointers& pointers, cudaStream_t stream) {
  launch_tiled(problem, plan, tile, make_thin_streamed_layout, kThinStreamedInstances, streamed::kernel_of, pointers,
               stream);
}

}  // namespace convt
