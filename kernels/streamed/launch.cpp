#include <cstddef>

#include "launch/families.h"
#include "plan/kernel_table.h"
#include "streamed/instances.h"
#include "streamed/layout.h"

namespace convt {

CONVT_NAMED_KERNEL_TABLE(streamed, kGatherKernels, CONVT_THIN_GATHER_INSTANCES)
CONVT_KERNEL_TABLE(streamed, CONVT_THIN_STREAMED_INSTANCES)

namespace {

// Kernel number `tile.instance` of `instances`, in whose order `kernels` are, with the layout that `make_layout` fills.
template <typename Tile, typename Layout, typename Instance, size_t kCount>
void launch_tiled(const ConvTProblem& problem, const Plan& plan, const Tile& tile,
                  bool (*make_layout)(const ConvTProblem&, const Tile&, Layout*), const Instance (&instances)[kCount],
                  const void* (*const (&kernels)[kCount])(), const Pointers& pointers, cudaStream_t stream) {
  instance_of(instances, tile.instance, problem, plan);
  streamed::TiledParams<Layout> params{};
  check_layout(make_layout(problem, tile, &params), params, plan);
  const bool forward = problem.direction == Direction::kForward;
  params.source = static_cast<const float*>(forward ? pointers.x : pointers.y);
  params.result = static_cast<float*>(forward ? pointers.y : pointers.x);
  params.weight = static_cast<const float*>(pointers.w);
  params.bias = forward ? static_cast<const float*>(pointers.bias) : nullptr;
  params.result_on_vectors = is_aligned(params.result, 16);
  launch_kernel(kernels[tile.instance](), grid_of(plan), stream, params);
}

}  // namespace

void launch_thin_gather(const ConvTProblem& problem, const Plan& plan, const ThinGatherTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  launch_tiled(problem, plan, tile, make_thin_gather_layout, kThinGatherInstances, streamed::kGatherKernels, pointers,
               stream);
}

void launch_thin_streamed(const ConvTProblem& problem, const Plan& plan, const ThinStreamedTile& tile,
                          const Pointers& pointers, cudaStream_t stream) {
  launch_tiled(problem, plan, tile, make_thin_streamed_layout, kThinStreamedInstances, streamed::kKernels, pointers,
               stream);
}

}  // namespace convt
