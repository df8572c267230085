// Tiles whose source goes straight from global memory to the registers of the threads that multiply it, forward and, as
// its adjoint problem, the gradient of the input: which results a CTA owns, and where its weights lie in shared memory.
// One definition for the planner, launch/ and the kernel (streamed/kernel.cuh).
//
// A warp owns 32 neighbouring positions for each of a thread's and a thread's channels; a CTA keeps the weights of its
// channels for all terms of their sums.
#pragma once

#include <cstdint>

#include "problem/problem.h"
#include "streamed/tiled_layout.h"

namespace convt {

// The tile of streamed sources.
struct ThinStreamedTile {
  int32_t instance;  // index into kThinStreamedInstances
  int32_t warps_channels;
  int32_t warps_positions;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("warps_channels", warps_channels);
    field("warps_positions", warps_positions);
  }
};

inline constexpr int32_t kMaxStreamedThreads = 256;
inline constexpr int32_t kMostStreamedTaps = 32;  // of an axis: bits of a word say which a position has
inline constexpr int32_t kStreamedPadding = 16;  // of the list of terms, so that batches of it are always whole
inline constexpr int32_t kStreamedVector = 4;  // channels that are read at once where they are neighbours

// CTAs of kMaxStreamedThreads threads that share an SM: its registers divided by those of a thread.
CONVT_HOST_DEVICE constexpr int32_t min_streamed_blocks(int32_t sums, int32_t taps) {
  return sums > 16 || taps > 0 ? 2 : sums > 8 ? 3 : 4;
}

struct ThinStreamedLayout : ThinTiledLayout {
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t weight_pitch;  // elements from a term's weights to the next one's
  int32_t weights_begin;  // bytes; the list of terms is before them
  int32_t threads;
  int32_t shared_bytes;
};

// False where a plan is not one of the problem, or 32 bits do not hold its numbers.
bool make_thin_streamed_layout(const ConvTProblem& problem, const ThinStreamedTile& plan, ThinStreamedLayout* layout);

}  // namespace convt
