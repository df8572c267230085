// The launch of a tiled kernel of the thin engine (streamed/tiled_layout.h). Called by streamed/gather_launch.cpp and
// streamed/launch.cpp.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "launch/families.h"

namespace convt {

// Launches kernel number `tile.instance` of `instances`, in whose order `kernels` are. Params is the layout, which
// `make_layout` fills, and the operands. Throws std::runtime_error where number or plan are of another problem.
template <typename Params, typename Tile, typename Layout, typename Instance, size_t kCount>
void launch_thin_tiled(const ConvTProblem& problem, const Plan& plan, const Tile& tile,
                       bool (*make_layout)(const ConvTProblem&, const Tile&, Layout*),
                       const Instance (&instances)[kCount], const void* (*const (&kernels)[kCount])(),
                       const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= static_cast<int32_t>(kCount) || instances[index].dtype != problem.dtype ||
      instances[index].direction != problem.direction) {
    throw std::runtime_error("convt_ext: number " + std::to_string(index) + " of the kernels like " + plan.kernel +
                             " does not compute " + name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  Params params{};
  if (!make_layout(problem, tile, &params) || params.threads != plan.threads ||
      params.shared_bytes != plan.shared_bytes || params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  const bool forward = problem.direction == Direction::kForward;
  params.source = static_cast<const float*>(forward ? pointers.x : pointers.y);
  params.result = static_cast<float*>(forward ? pointers.y : pointers.x);
  params.weight = static_cast<const float*>(pointers.w);
  params.bias = forward ? static_cast<const float*>(pointers.bias) : nullptr;
  params.result_on_vectors = is_aligned(params.result, 16);
  launch_kernel(kernels[index](), grid_of(plan), stream, params);
}

}  // namespace convt
