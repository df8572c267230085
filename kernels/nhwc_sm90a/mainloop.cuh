// Main loops of the nhwc family. GEMM rows are positions, columns are result channels. Operand A in registers comes
// from ldmatrix without rearrangement: 16 bytes of a position's channels are a row, for float32 as for half precision.
#pragma once

#include "element/registers.cuh"
#include "nhwc_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/operand_layout.cuh"
#include "ptx/shared.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// Fragments of a group of products: [step of K][block].
template <typename Shape>
using Fragments = uint32_t[Shape::kGroupSteps][Shape::kBlocks][4];

// Place in the box that tap (0, 0) reads for a position of the tile; 0 if the position does not exist.
__device__ __forceinline__ int32_t place_of(const Params& params, int32_t number) {
  Position position;
  if (!position_of_tile(params, number, &position)) return 0;
  return (position.image * params.box_h + position.row) * params.box_w + position.column;
}

// Place of the position whose row this lane passes to ldmatrix. Lanes 0 to 15 pass the first 16 bytes of a step of K,
// the others the second.
template <typename Shape>
__device__ __forceinline__ int32_t place_of_lane(const Params& params, int32_t warp, int block) {
  return place_of(params, positions_before<Shape>(warp, block) + static_cast<int32_t>(threadIdx.x % 16));
}

// All products of a tile, accumulated in the order of windows, chunks of channels, taps, steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params, int32_t first_window,
                                              const Stages& stages, const int32_t (&places)[Shape::kBlocks],
                                              uint32_t s_source, uint32_t s_weights, Ring* sources, Ring* weights) {
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  const uint32_t half = threadIdx.x % 32 / 16;
  Fragments<Shape> fragments[2];
  uint32_t used = 0;  // empty barrier of the weights that products in flight may read
  element::clear(acc.r);
  StageWalk walk = stages.walk(first_window);
#pragma unroll 1
  for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
    const Window& window = params.windows[walk.window];
    walk.advance(params);
    const int32_t taps = window.num_h * window.num_w;
    if (taps == 0) continue;
    TapWalk tap_walk;
    tap_walk.begin(window);
    sources->wait_full();
    const uint32_t s_box = s_source + sources->slot() * params.stage_bytes;
#pragma unroll 1
    for (int32_t tap = 0; tap < taps; ++tap) {
      uint32_t s_row[Shape::kBlocks], swizzle[Shape::kBlocks];
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        const uint32_t row = places[block] + tap_walk.place();
        s_row[block] = s_box + row * Shape::kRowBytes;
        swizzle[block] = ptx::tensor_swizzle(Shape::kRowBytes, row, half) * 16;
      }
      tap_walk.advance();
      weights->wait_full();
      const auto b = ptx::MatrixDescriptor::of_rows(s_weights + weights->slot() * Shape::kTapBytes, Shape::kRowBytes);
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        ptx::wgmma_wait<1>();  // the previous products that read these registers are complete
        element::fence_registers(fragments[group]);
#pragma unroll
        for (int step = 0; step < Shape::kGroupSteps; ++step) {
#pragma unroll
          for (int block = 0; block < Shape::kBlocks; ++block) {
            uint32_t words[4];
            ptx::load_matrices(words, s_row[block] + (swizzle[block] ^ (group * Shape::kGroupSteps + step) * 32));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              element::write_fragment<typename Shape::Element>(fragments[group][step][block][i], words[i], zero);
            }
          }
        }
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < Shape::kGroupSteps; ++step) {
#pragma unroll
          for (int block = 0; block < Shape::kBlocks; ++block) {
            ptx::wgmma<typename Shape::Traits::Element>(acc.r[block], fragments[group][step][block],
                                                        b.moved((group * Shape::kGroupSteps + step) * 2), true);
          }
        }
        ptx::wgmma_commit();
        if (group == 1 && used != 0) release(used);
      }
      used = weights->empty();
      weights->advance();
    }
    release(sources->empty());
    sources->advance();
  }
  ptx::wgmma_wait<0>();
  element::fence_registers(fragments);
  if (used != 0) release(used);
}

// Byte offset in a box of a warpgroup's block of positions, for tap (0, 0).
template <typename Shape>
__device__ __forceinline__ uint32_t block_in_box(const Params& params, int32_t warp, int block) {
  return place_of(params, positions_before<Shape>(warp / 4 * 4, block)) * Shape::kRowBytes;
}

// All products of a tile with both operands in shared memory: its positions are groups of eight contiguous places with
// a constant distance between groups. The order is that of multiply_tile(). Each window has at most one tap.
template <typename Shape>
__device__ __forceinline__ void multiply_boxes(Accumulators<Shape>& acc, const Params& params, int32_t first_window,
                                               const Stages& stages, int32_t warp, uint32_t s_source,
                                               uint32_t s_weights, Ring* sources, Ring* weights) {
  element::clear(acc.r);
  uint32_t s_blocks[Shape::kBlocks];  // in the first slot
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    s_blocks[block] = s_source + block_in_box<Shape>(params, warp, block);
  }
  uint32_t used_source = 0, used_weights = 0;  // empty barriers of the stage that products in flight may read
  StageWalk walk = stages.walk(first_window);
#pragma unroll 1
  for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
    const bool is_empty = params.windows[walk.window].num_h == 0;
    walk.advance(params);
    if (is_empty) continue;
    sources->wait_full();
    const uint32_t box = sources->slot() * params.stage_bytes;
    weights->wait_full();
    const auto b = ptx::MatrixDescriptor::of_rows(s_weights + weights->slot() * Shape::kTapBytes, Shape::kRowBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        const auto a = ptx::MatrixDescriptor::of_groups(s_blocks[block] + box, Shape::kRowBytes, params.group_bytes);
        ptx::wgmma<typename Shape::Traits::Element>(acc.r[block], a.moved(step * 2), b.moved(step * 2), true);
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the previous stage's products are complete
    if (used_source != 0) {
      release(used_source);
      release(used_weights);
    }
    used_source = sources->empty();
    used_weights = weights->empty();
    sources->advance();
    weights->advance();
  }
  ptx::wgmma_wait<0>();
  if (used_source != 0) {
    release(used_source);
    release(used_weights);
  }
}

// Like multiply_boxes(), for windows with any number of taps. A weight slot holds several taps.
template <typename Shape>
__device__ __forceinline__ void multiply_taps_of_boxes(Accumulators<Shape>& acc, const Params& params,
                                                       int32_t first_window, const Stages& stages, int32_t warp,
                                                       uint32_t s_source, uint32_t s_weights, Ring* sources,
                                                       Ring* weights) {
  element::clear(acc.r);
  uint32_t s_blocks[Shape::kBlocks];  // in the first slot
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    s_blocks[block] = s_source + block_in_box<Shape>(params, warp, block);
  }
  uint32_t used_source = 0, used_weights = 0;  // empty barriers of slots that products in flight may read
  StageWalk walk = stages.walk(first_window);
#pragma unroll 1
  for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
    const Window& window = params.windows[walk.window];
    walk.advance(params);
    const int32_t taps = window.num_h * window.num_w;
    if (taps == 0) continue;
    TapWalk tap_walk;
    tap_walk.begin(window);
    sources->wait_full();
    const uint32_t box = sources->slot() * params.stage_bytes;
#pragma unroll 1
    for (int32_t tap = 0; tap < taps;) {
      weights->wait_full();
      uint32_t s_tap = s_weights + weights->slot() * params.slot_taps * Shape::kTapBytes;
      const int32_t end = min(tap + params.slot_taps, taps);
#pragma unroll 1
      do {
        ptx::wgmma_fence();
        const auto b = ptx::MatrixDescriptor::of_rows(s_tap, Shape::kRowBytes);
#pragma unroll
        for (int step = 0; step < Shape::kSteps; ++step) {
#pragma unroll
          for (int block = 0; block < Shape::kBlocks; ++block) {
            const auto a = ptx::MatrixDescriptor::of_groups(s_blocks[block] + box + tap_walk.place() * Shape::kRowBytes,
                                                            Shape::kRowBytes, params.group_bytes);
            ptx::wgmma<typename Shape::Traits::Element>(acc.r[block], a.moved(step * 2), b.moved(step * 2), true);
          }
        }
        tap_walk.advance();
        s_tap += Shape::kTapBytes;
      } while (++tap < end);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the previous products are complete
      if (used_weights != 0) release(used_weights);
      if (used_source != 0) release(used_source);
      used_source = 0;
      used_weights = weights->empty();
      weights->advance();
    }
    used_source = sources->empty();
    sources->advance();
  }
  ptx::wgmma_wait<0>();
  if (used_weights != 0) {
    release(used_weights);
    release(used_source);
  }
}

#endif

}  // namespace convt::nhwc_sm90a
