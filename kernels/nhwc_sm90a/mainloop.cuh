// The NHWC engine's products: positions are the rows, in registers, result channels the columns. Fragments come from
// the source as it lies in memory: 16 bytes of channels of a position are a row of ldmatrix, in float32 as in half
// precision.
#pragma once

#include "element/registers.cuh"
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

// The box's place of the position whose row of a matrix this lane gives to ldmatrix: lanes 0 to 15 the first 16 bytes
// of a step of K, the others the second.
template <typename Shape>
__device__ __forceinline__ int32_t place_of_lane(const Params& params, int32_t warp, int block) {
  Position position;
  const int32_t number = positions_before<Shape>(warp, block) + static_cast<int32_t>(threadIdx.x % 16);
  if (!position_of_tile(params, number, &position)) return 0;
  return (position.image * params.box_h + position.row) * params.box_w + position.column;
}

// All products of a tile, added in the order of windows, chunks of channels, taps, steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params, int32_t first_window,
                                              const Stages& stages, const int32_t (&places)[Shape::kBlocks],
                                              uint32_t s_source, uint32_t s_weights, Ring* sources, Ring* weights) {
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  const uint32_t half = threadIdx.x % 32 / 16;
  Fragments<Shape> fragments[2];
  uint32_t used = 0;  // the barrier of the weights whose products may be in flight
  element::clear(acc.r);
  StageWalk walk = stages.walk(first_window);
#pragma unroll 1
  for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
    const Window& window = params.windows[walk.window];
    walk.advance(params);
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
        element::keep(fragments[group]);
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
  element::keep(fragments);
  if (used != 0) release(used);
}

// All products of a tile whose positions are neighbours in the box: a stage has one tap, and both operands of its
// products lie in shared memory as descriptors have them.
template <typename Shape>
__device__ __forceinline__ void multiply_boxes(Accumulators<Shape>& acc, const Params& params, int32_t first_window,
                                               const Stages& stages, int32_t warp, uint32_t s_source,
                                               uint32_t s_weights, Ring* sources, Ring* weights) {
  element::clear(acc.r);
  const uint32_t s_rows = s_source + positions_before<Shape>(warp / 4 * 4, 0) * Shape::kRowBytes;
  uint32_t used_source = 0, used_weights = 0;  // the barriers of the stage whose products may be in flight
  StageWalk walk = stages.walk(first_window);
#pragma unroll 1
  for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
    const bool is_empty = params.windows[walk.window].num_h == 0;
    walk.advance(params);
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
        ptx::wgmma<typename Shape::Traits::Element>(acc.r[block], a.moved(block * 4 * Shape::kRowBytes + step * 2),
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

// Operands of tf32x3 are sums of two TF32 numbers, a high and a low term, and a product is three. Tensor cores round
// their sums toward zero; so they sum a stage's products of a tap, 32 at most, and such runs are added in float32
// registers. The fragments are those of one half of a run.
template <typename Shape>
using SplitFragments = element::Terms<Fragments<Shape>>;

// The taps of a tile one after the other: windows, chunks of channels, taps.
class TapWalk {
 public:
  __device__ __forceinline__ TapWalk(int32_t first_window, const Stages& stages)
      : stages_left_(stages.end - stages.begin), next_(stages.walk(first_window)), taps_left_(1) {}

  // On to the next tap and the box that it reads, which is there then; false behind the last one.
  __device__ __forceinline__ bool advance(const Params& params, uint32_t s_source, const Ring& sources) {
    if (--taps_left_ > 0) {
      place_ += column_step_;
      if (++column_ == num_w_) {
        column_ = 0;
        place_ += row_step_;
      }
      return true;
    }
#pragma unroll 1
    for (; stages_left_ > 0; --stages_left_) {
      const Window& window = params.windows[next_.window];
      next_.advance(params);
      num_w_ = window.num_w;
      taps_left_ = window.num_h * num_w_;
      if (taps_left_ == 0) continue;
      place_ = window.first;
      column_ = 0;
      column_step_ = window.column_step;
      row_step_ = window.row_step - num_w_ * column_step_;
      sources.wait_full();
      s_box_ = s_source + sources.slot() * params.stage_bytes;
      --stages_left_;
      return true;
    }
    return false;
  }

  __device__ __forceinline__ bool ends_stage() const { return taps_left_ == 1; }
  __device__ __forceinline__ int32_t place() const { return place_; }
  __device__ __forceinline__ uint32_t box() const { return s_box_; }

 private:
  int32_t stages_left_;  // behind this one
  StageWalk next_;
  int32_t taps_left_, num_w_, column_;  // of the stage, this tap among them
  int32_t place_, column_step_, row_step_;  // row_step_: from behind a row's last tap
  uint32_t s_box_;
};

// One half of a run's fragments.
template <typename Shape>
__device__ __forceinline__ void load_half(SplitFragments<Shape>& fragments, const TapWalk& walk,
                                          const int32_t (&places)[Shape::kBlocks], int half) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    const uint32_t row = places[block] + walk.place();
    const uint32_t s_row = walk.box() + row * Shape::kRowBytes;
    const uint32_t swizzle = ptx::tensor_swizzle(Shape::kRowBytes, row, threadIdx.x % 32 / 16) * 16;
#pragma unroll
    for (int step = 0; step < Shape::kGroupSteps; ++step) {
      uint32_t words[4];
      ptx::load_matrices(words, s_row + (swizzle ^ (half * Shape::kGroupSteps + step) * 32));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        element::write_terms(fragments.high[step][block][i], fragments.low[step][block][i], words[i]);
      }
    }
  }
}

// The products of one half of a run. The small ones come first: the smaller a sum, the less its rounding.
template <typename Shape>
__device__ __forceinline__ void multiply_half(Accumulators<Shape>& runs, const SplitFragments<Shape>& fragments,
                                              const ptx::MatrixDescriptor& weights, int half) {
  ptx::wgmma_fence();
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int step = 0; step < Shape::kGroupSteps; ++step) {
      const ptx::MatrixDescriptor high = weights.moved((half * Shape::kGroupSteps + step) * 2);
      const ptx::MatrixDescriptor low = high.moved(Shape::kTermBytes / 16);
      ptx::wgmma_tf32(runs.r[block], fragments.low[step][block], high, half + step > 0);
      ptx::wgmma_tf32(runs.r[block], fragments.high[step][block], low, true);
    }
#pragma unroll
    for (int step = 0; step < Shape::kGroupSteps; ++step) {
      const ptx::MatrixDescriptor high = weights.moved((half * Shape::kGroupSteps + step) * 2);
      ptx::wgmma_tf32(runs.r[block], fragments.high[step][block], high, true);
    }
  }
  ptx::wgmma_commit();
}

template <typename Shape>
__device__ __forceinline__ void add_runs(Accumulators<Shape>& acc, Accumulators<Shape>& runs) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) {
      element::keep(runs.r[block][i]);
      acc.r[block][i] = __fadd_rn(acc.r[block][i], runs.r[block][i]);
    }
  }
}

// All products of a tile of tf32x3, added in the order of windows, chunks of channels, taps, each of which is a run.
template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& acc, const Params& params,
                                                    int32_t first_window, const Stages& stages,
                                                    const int32_t (&places)[Shape::kBlocks], uint32_t s_source,
                                                    uint32_t s_weights, Ring* sources, Ring* weights) {
  SplitFragments<Shape> first, second;  // halves of a run
  Accumulators<Shape> runs;
  element::clear(acc.r);
  TapWalk walk(first_window, stages);
  bool goes_on = walk.advance(params, s_source, *sources);
  if (goes_on) load_half<Shape>(first, walk, places, 0);
#pragma unroll 1
  while (goes_on) {
    weights->wait_full();
    const auto b = ptx::MatrixDescriptor::of_rows(s_weights + weights->slot() * Shape::kTapBytes, Shape::kRowBytes);
    multiply_half<Shape>(runs, first, b, 0);
    // Waits for nothing, but without it ptxas makes the other half's fragments before these products, which is better
    // only where these are short.
    if constexpr (Shape::kN == 128) ptx::wgmma_wait<1>();
    load_half<Shape>(second, walk, places, 1);
    multiply_half<Shape>(runs, second, b, 1);
    // While these run: the first half of the next run.
    if (walk.ends_stage()) {
      release(sources->empty());
      sources->advance();
    }
    goes_on = walk.advance(params, s_source, *sources);
    ptx::wgmma_wait<1>();
    element::keep(first);
    if (goes_on) load_half<Shape>(first, walk, places, 0);
    // ptxas serializes all products where accumulators in flight at the loop's jump are read. The other warpgroup's run
    // meanwhile.
    ptx::wgmma_wait<0>();
    element::keep(second);
    add_runs<Shape>(acc, runs);
    release(weights->empty());
    weights->advance();
  }
}

#endif

}  // namespace convt::nhwc_sm90a
