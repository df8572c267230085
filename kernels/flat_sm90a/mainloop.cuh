// The flat engine's loader, two threads, and its products. Weights are the first operand, positions the second, so that
// neighbouring sums of a thread are neighbouring columns of the result; a tap is another start address of the same
// planes.
#pragma once

#include "flat_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::flat_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// One thread: windows of the packed source, one plane a copy.
template <typename Shape>
__device__ __forceinline__ void load_source(const Params& params, uint32_t s_source, uint32_t s_barriers) {
  Ring ring(s_barriers, params.source_slots);
  const uint32_t window_bytes = params.window * 16;
  const int32_t planes = 2 * params.k_steps;
  const int64_t plane_step = params.sub_tiles * params.plane_bytes;
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const char* g_chunk = static_cast<const char*>(params.source) +
                          tile.group * params.group_planes * params.plane_bytes + int64_t{tile.begin} * 16;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      for (int32_t sub = 0; sub < params.sub_tiles; ++sub) {
        const int32_t run = first_run<Shape>(params, tile, sub);
        if (params.run_begin[run] == params.run_begin[run + Shape::kPhases]) continue;  // no taps
        const char* g_window = g_chunk + sub * params.plane_bytes +
                               int64_t{params.window_begin[params.sub_tiles > 1 ? sub : tile.phase_h]} * 16;
        uint32_t s_window = s_source + ring.slot() * planes * window_bytes;
        ring.wait_empty();  // the consumers have multiplied what was here
        ptx::mbarrier_expect(ring.full(), planes * window_bytes);
        for (int32_t plane = 0; plane < planes; ++plane) {
          ptx::bulk_copy(s_window, g_window, window_bytes, ring.full());
          g_window += plane_step;
          s_window += window_bytes;
        }
        ring.advance();
      }
      g_chunk += planes * plane_step;
    }
  }
}

// One thread: the weights in the order in which the consumers ask for them, for one channel tile or one per consumer.
template <typename Shape>
__device__ __forceinline__ void load_weights(const Params& params, uint32_t s_weights, uint32_t s_barriers) {
  Ring ring(s_barriers, params.weight_slots);
  const uint32_t part_bytes = params.slot_taps * params.tap_bytes;
  const int32_t parts = params.split_channels ? Shape::kConsumers : 1;
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const int32_t first = tile.block_tile * parts;
    const int32_t existing = min(parts, params.channel_tiles - first);
    const int32_t phase_begin = params.run_begin[first_run<Shape>(params, tile, 0)];
    const char* g_chunk = static_cast<const char*>(params.packed) +
                          (int64_t{tile.group} * params.channel_tiles + first) * params.packed_tile_step +
                          params.packed_phase_begin[tile.phase_h];
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      for (int32_t sub = 0; sub < params.sub_tiles; ++sub) {
        const int32_t run = first_run<Shape>(params, tile, sub);
        const int32_t end = params.run_begin[run + Shape::kPhases];
        for (int32_t tap = params.run_begin[run]; tap < end; tap += params.slot_taps) {
          const uint32_t bytes = min(params.slot_taps, end - tap) * params.tap_bytes;
          const char* g_taps = g_chunk + int64_t{tap - phase_begin} * params.tap_bytes;
          const uint32_t s_slot = s_weights + ring.slot() * parts * part_bytes;
          ring.wait_empty();  // the consumers have multiplied what was here
          ptx::mbarrier_expect(ring.full(), existing * bytes);
          for (int32_t part = 0; part < existing; ++part) {
            ptx::bulk_copy(s_slot + part * part_bytes, g_taps + part * params.packed_tile_step, bytes, ring.full());
          }
          ring.advance();
        }
      }
      g_chunk += params.packed_chunk_step[tile.phase_h];
    }
  }
}

// Which slots a warpgroup leaves as soon as the products before the newest group are done.
class Leaving {
 public:
  __device__ __forceinline__ void set_weights(uint32_t barrier) { weights_ = barrier; }
  __device__ __forceinline__ void set_source(uint32_t barrier) { source_ = barrier; }
  __device__ __forceinline__ void release() {
    if (threadIdx.x % 32 == 0) {  // every warp says for itself that it has left a slot
      if (weights_ != 0) ptx::mbarrier_arrive(weights_);
      if (source_ != 0) ptx::mbarrier_arrive(source_);
    }
    weights_ = source_ = 0;
  }

 private:
  uint32_t weights_ = 0, source_ = 0;
};

// The products of one tap in one stage.
template <typename Shape>
__device__ __forceinline__ void multiply_tap(float (*d)[Shape::kColumns / 2], const Params& params,
                                             ptx::MatrixDescriptor a, ptx::MatrixDescriptor b) {
  constexpr uint32_t kWeightStep = 2 * kFlatChannels;  // of a step of K, in 16 bytes
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

// All products of a tile. The sums' order: stages, residues, taps, steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& sums, const Params& params, const Tile& tile,
                                              uint32_t s_source, uint32_t s_weights, Ring* sources, Ring* weights) {
  const int32_t consumer = consumer_of_thread<Shape>();
  const uint32_t plane_bytes = params.window * 16;
  const uint32_t stage_bytes = 2 * params.k_steps * plane_bytes;
  const uint32_t first_position = params.split_channels ? 0 : consumer * Shape::kPositions;
  const uint32_t part_bytes = params.slot_taps * params.tap_bytes;
  const uint32_t slot_bytes = (params.split_channels ? Shape::kConsumers : 1) * part_bytes;
  const uint32_t s_my_weights = s_weights + (params.split_channels ? consumer : 0) * part_bytes;
  Leaving leaving;
  sums.clear();
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
      int32_t taps_left = 0;  // in the slot
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
          multiply_tap<Shape>(&sums.r[phase * Shape::kBlocks], params, a, source.moved(params.places[tap]));
          a = a.moved(params.tap_bytes / 16);
          if (--taps_left == 0) {
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            leaving.release();
            leaving.set_weights(weights->empty());
            weights->advance();
          }
        }
      }
      leaving.set_source(sources->empty());
      sources->advance();
    }
  }
  ptx::wgmma_wait<0>();
  leaving.release();
}

#endif

}  // namespace convt::flat_sm90a
