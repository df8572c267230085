// Tiles of the flat family and their main loop. The weight is operand A and positions are operand B, so that adjacent
// accumulators of a thread are adjacent columns of the result. Each tap reads the same planes at another start address.
#pragma once

#include "element/operand.cuh"
#include "element/registers.cuh"
#include "flat_sm90a/params.h"
#include "hopper/kernel.cuh"
#include "pipeline/ring.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::flat_sm90a {

using hopper::first_tile;
using hopper::tile_step;
using pipeline::Ring;

// Each of kConsumers warpgroups computes 64 channels of kPositions positions in kPhases W phases. One wgmma covers
// kColumns positions. It cannot cover 256 if threads start with 128 registers: ptxas then runs out of them.
template <typename TraitsValue, int kPhasesValue, int kConsumersValue, int kAccumulatorsValue>
struct Shape {
  using Traits = TraitsValue;
  static constexpr int kPhases = kPhasesValue;
  static constexpr int kConsumers = kConsumersValue;
  static constexpr int kPositions = kAccumulatorsValue / kPhases;
  static constexpr int kBlocks = kPositions == 256 && kConsumers == 1 ? 2 : 1;
  static constexpr int kColumns = kPositions / kBlocks;
};

#ifdef CONVT_HAS_WGMMA

struct Tile {
  int32_t channel_tile;  // in units of the CTA's channels
  int32_t phase_h;
  int32_t group;
  int32_t begin;  // first position
};

// Order of tiles: channels fastest, then H phases, groups, positions, so that consecutive tiles share source in L2.
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  number = params.block_tiles(number, &tile.channel_tile);
  number = params.h_phases(number, &tile.phase_h);
  number = params.group_tiles(number, &tile.group);
  tile.begin = number * params.tile_positions;
  return tile;
}

// The first of a stage's runs of taps. There is one run per W phase.
template <typename Shape>
__device__ __forceinline__ int32_t first_run(const Params& params, const Tile& tile, int32_t sub) {
  return params.sub_tiles > 1 ? sub : tile.phase_h * Shape::kPhases;
}

template <typename Shape>
struct Accumulators {
  float r[Shape::kPhases * Shape::kBlocks][Shape::kColumns / 2];  // [phase][block]

  // Accumulator `i` of the thread's four in a block of 8 positions: 2 positions of a channel, then of the channel 8
  // further.
  __device__ __forceinline__ float of(int phase, int positions, int i) const {
    constexpr int kOfBlock = Shape::kColumns / 8;
    return r[phase * Shape::kBlocks + positions / kOfBlock][4 * (positions % kOfBlock) + i];
  }
};

// Issues the products of one tap in one stage.
template <typename Shape>
__device__ __forceinline__ void multiply_tap(float (*d)[Shape::kColumns / 2], const Params& params,
                                             ptx::MatrixDescriptor a, ptx::MatrixDescriptor b) {
  constexpr uint32_t kWeightStep = 2 * kFlatChannels;  // per step of K, in units of 16 bytes
  const uint32_t source_step = 2 * params.window;
  if (params.k_steps == 4) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        ptx::wgmma<typename Shape::Traits::Element>(d[block], a.moved(step * kWeightStep),
                                                    b.moved(step * source_step + block * Shape::kColumns), true);
      }
    }
  } else {
#pragma unroll 1
    for (int32_t step = 0; step < params.k_steps; ++step) {
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        ptx::wgmma<typename Shape::Traits::Element>(d[block], a, b.moved(block * Shape::kColumns), true);
      }
      a = a.moved(kWeightStep);
      b = b.moved(source_step);
    }
  }
}

// Computes all products of a tile, accumulated in the order of chunks, residues, taps, steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                              int32_t consumer, uint32_t s_source, uint32_t s_weights, Ring* sources,
                                              Ring* weights) {
  const uint32_t plane_bytes = params.window * 16;
  const uint32_t stage_bytes = 2 * params.k_steps * plane_bytes;
  const uint32_t first_position = params.split_channels ? 0 : consumer * Shape::kPositions;
  const uint32_t tile_bytes = params.slot_taps * params.tap_bytes;
  const uint32_t slot_bytes = (params.split_channels ? Shape::kConsumers : 1) * tile_bytes;
  const uint32_t s_my_weights = s_weights + (params.split_channels ? consumer : 0) * tile_bytes;
  uint32_t used_weights = 0, used_source = 0;  // empty barriers of slots that products in flight may read
  const auto release_used = [&] {
    if (used_weights != 0) pipeline::release(used_weights);
    if (used_source != 0) pipeline::release(used_source);
    used_weights = used_source = 0;
  };
  element::clear(acc.r);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
#pragma unroll 1
    for (int32_t sub = 0; sub < params.sub_tiles; ++sub) {
      const int32_t run = first_run<Shape>(params, tile, sub);
      int32_t tap = params.run_begin[run];
      const int32_t end = params.run_begin[run + Shape::kPhases];
      if (tap == end) continue;
      sources->wait_full();
      const auto source =
          ptx::MatrixDescriptor::of(s_source + sources->slot() * stage_bytes, plane_bytes, 128).moved(first_position);
      ptx::MatrixDescriptor a{};
      int32_t taps_left = 0;  // taps left in the weight slot
#pragma unroll
      for (int phase = 0; phase < Shape::kPhases; ++phase) {
        const int32_t phase_end = params.run_begin[run + phase + 1];
#pragma unroll 1
        for (; tap < phase_end; ++tap) {
          if (taps_left == 0) {
            taps_left = min(params.slot_taps, end - tap);
            weights->wait_full();
            a = ptx::MatrixDescriptor::of(s_my_weights + weights->slot() * slot_bytes, kFlatChannels * 16, 128);
          }
          ptx::wgmma_fence();
          multiply_tap<Shape>(&acc.r[phase * Shape::kBlocks], params, a, source.moved(params.places[tap]));
          a = a.moved(params.tap_bytes / 16);
          if (--taps_left == 0) {
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            release_used();
            used_weights = weights->empty();
            weights->advance();
          }
        }
      }
      used_source = sources->empty();
      sources->advance();
    }
  }
  ptx::wgmma_wait<0>();
  release_used();
}

#endif

}  // namespace convt::flat_sm90a
