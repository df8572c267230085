// The NHWC engine's products: positions are the rows, in registers, result channels the columns. Fragments come from
// the source as it lies in memory: 16 bytes of channels of a position are a row of ldmatrix, in float32 as in half
// precision.
#pragma once

#include "nhwc_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// Of a group of products: [step of K][block].
template <typename Shape>
using Fragments = uint32_t[Shape::kGroupSteps][Shape::kBlocks][4];

template <typename Shape>
__device__ __forceinline__ void keep(Fragments<Shape>& fragments) {
#pragma unroll
  for (int step = 0; step < Shape::kGroupSteps; ++step) {
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::keep_fragment(fragments[step][block][i]);
    }
  }
}

// Products read their fragments while they are in flight, so that the registers are written here and not a moment
// sooner. `zero` is 0, which ptxas does not know: it drops a copy.
template <typename Shape>
__device__ __forceinline__ void load_fragment(uint32_t (&fragment)[4], uint32_t shared, uint32_t zero) {
  uint32_t words[4];
  ptx::load_matrices(words, shared);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Shape::Traits::kFloat32) {
      ptx::write_fragment_tf32(fragment[i], words[i]);
    } else {
      ptx::write_fragment(fragment[i], words[i] ^ zero);
    }
  }
}

// The box's place of the position whose row of a matrix this lane gives to ldmatrix: lanes 0 to 15 the first 16 bytes
// of a step of K, the others the second.
template <typename Shape>
__device__ __forceinline__ int32_t place_of_lane(const Params& params, int32_t warp, int block) {
  Position position;
  const int32_t number = positions_before<Shape>(warp, block) + static_cast<int32_t>(threadIdx.x) % 16;
  if (!position_of_tile(params, number, &position)) return 0;
  return (position.image * params.box_h + position.row) * params.box_w + position.column;
}

// All products of a tile. The sums' order: windows, chunks of channels, taps, steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& sums, const Params& params, int32_t first_window,
                                              const Stages& stages, const int32_t (&places)[Shape::kBlocks],
                                              uint32_t s_source, uint32_t s_weights, Ring* sources, Ring* weights) {
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  const uint32_t half = threadIdx.x % 32 / 16;
  Fragments<Shape> fragments[2];
  uint32_t used = 0;  // the barrier of the weights whose products may be in flight
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) sums.r[block][i] = 0;
  }
  int32_t index = first_window + stages.first_window, chunk = stages.first_chunk;
#pragma unroll 1
  for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
    const Window& window = params.windows[index];
    if (++chunk == params.num_chunks) {
      chunk = 0;
      ++index;
    }
    const int32_t num_w = window.num_w, taps = window.num_h * num_w;
    if (taps == 0) continue;
    int32_t place = window.first, column = 0;
    sources->wait_full();
    const uint32_t s_box = s_source + sources->slot() * params.stage_bytes;
#pragma unroll 1
    for (int32_t tap = 0; tap < taps; ++tap) {
      uint32_t s_row[Shape::kBlocks], swizzle[Shape::kBlocks];
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        const uint32_t row = places[block] + place;
        s_row[block] = s_box + row * Shape::kRowBytes;
        swizzle[block] = ptx::tensor_swizzle(Shape::kRowBytes, row, half) * 16;
      }
      place += window.column_step;
      if (++column == num_w) {
        column = 0;
        place += window.row_step - num_w * window.column_step;
      }
      weights->wait_full();
      const auto b = ptx::MatrixDescriptor::of_rows(s_weights + weights->slot() * Shape::kTapBytes, Shape::kRowBytes);
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        ptx::wgmma_wait<1>();  // the products of these registers' last fragments are done
        keep<Shape>(fragments[group]);
#pragma unroll
        for (int step = 0; step < Shape::kGroupSteps; ++step) {
#pragma unroll
          for (int block = 0; block < Shape::kBlocks; ++block) {
            load_fragment<Shape>(fragments[group][step][block],
                                 s_row[block] + (swizzle[block] ^ (group * Shape::kGroupSteps + step) * 32), zero);
          }
        }
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < Shape::kGroupSteps; ++step) {
#pragma unroll
          for (int block = 0; block < Shape::kBlocks; ++block) {
            ptx::wgmma<typename Shape::Traits::Element>(sums.r[block], fragments[group][step][block],
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
#pragma unroll
  for (int i = 0; i < 2; ++i) keep<Shape>(fragments[i]);
  if (used != 0) release(used);
}

// The same where positions of the tile are neighbours in the box: a stage has one tap, and both operands of its
// products lie in shared memory as descriptors have them.
template <typename Shape>
__device__ __forceinline__ void multiply_boxes(Accumulators<Shape>& sums, const Params& params, int32_t first_window,
                                               const Stages& stages, int32_t warp, uint32_t s_source,
                                               uint32_t s_weights, Ring* sources, Ring* weights) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) sums.r[block][i] = 0;
  }
  const uint32_t s_rows = s_source + positions_before<Shape>(warp / 4 * 4, 0) * Shape::kRowBytes;
  uint32_t used_source = 0, used_weights = 0;  // the barriers of the stage whose products may be in flight
  int32_t index = first_window + stages.first_window, chunk = stages.first_chunk;
#pragma unroll 1
  for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
    const bool is_empty = params.windows[index].num_h == 0;
    if (++chunk == params.num_chunks) {
      chunk = 0;
      ++index;
    }
    if (is_empty) continue;
    sources->wait_full();
    const auto a = ptx::MatrixDescriptor::of_rows(s_rows + sources->slot() * params.stage_bytes, Shape::kRowBytes);
    weights->wait_full();
    const auto b = ptx::MatrixDescriptor::of_rows(s_weights + weights->slot() * Shape::kTapBytes, Shape::kRowBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        ptx::wgmma<typename Shape::Traits::Element>(sums.r[block], a.moved(block * 4 * Shape::kRowBytes + step * 2),
                                                    b.moved(step * 2), true);
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the stage before this one has been multiplied
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

#endif

}  // namespace convt::nhwc_sm90a
