// The producers: source -> operand planes, and packed weights -> weight slots.
//
// The source comes by asynchronous copies into raw slots, as it is in memory; from there it is converted into the
// planes of an operand slot, [position][16 bytes]: 4 TF32 or 8 half-precision channels of every position of the tile's
// windows. Two raw stages are always on their way, also across tiles, so that memory has requests to work on. What lies
// outside the source is zero, so that a product with it adds nothing.
#pragma once

#include "plan/wgmma.h"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"
#include "wgmma_sm90a/params.h"
#include "wgmma_sm90a/tile.cuh"
#include "wgmma_sm90a/traits.cuh"

namespace convt::wgmma_sm90a {

#ifdef CONVT_HAS_WGMMA

inline constexpr int kLoaderThreads = kLoaderWarps * 32;
inline constexpr int kLoaderBarrier = 1;

// Copies one stage of a tile into a raw slot: for Walk::kChannels in the order of the operand planes, otherwise
// [channel][position].
template <typename Traits>
class SourceTile {
  using Element = typename Traits::Element;

 public:
  __device__ __forceinline__ SourceTile(const Params& params, const Tile& tile) : params_(params), tile_(tile) {}

  __device__ __forceinline__ void copy(int32_t chunk, uint32_t s_raw, int32_t thread) const {
    const int32_t k_begin = chunk * 2 * params_.k_steps * Traits::kChannels;
    if (params_.walk == Walk::kChannels) {
      copy_channels(k_begin, s_raw, thread);
    } else if (params_.walk == Walk::kVectors) {
      copy_columns<16>(k_begin, s_raw, thread);
    } else if (params_.walk == Walk::kWords) {
      copy_columns<4>(k_begin, s_raw, thread);
    } else {
      copy_columns<sizeof(Element)>(k_begin, s_raw, thread);
    }
  }

 private:
  // Unit number `index` of kColumns columns: the group's channel 0 there, or null outside the source; *place is its
  // position in a plane.
  template <int kColumns>
  __device__ __forceinline__ const Element* locate(int32_t index, int32_t* place) const {
    const TapProgram& program = params_.program;
    int32_t column, row = 0, image = 0, sub_h = tile_.phase_h, sub_w = 0;
    const int32_t line = params_.by_units(index, &column);
    column *= kColumns;
    *place = line * params_.pitch + column;
    if (params_.tile_n == 1 && program.sub_h * program.sub_w == 1) {
      row = line;
    } else {
      const int32_t sub = params_.by_images(params_.by_rows(line, &row), &image);
      if (program.sub_h * program.sub_w > 1) sub_h = params_.by_sub_w(sub, &sub_w);
    }
    const AxisWindow &h = program.window_h[sub_h], &w = program.window_w[sub_w];
    const int32_t ih = (tile_.p_h_begin + h.shift + row) * program.source_step_h + h.residue;
    const int32_t iw = (tile_.p_w_begin + w.shift + column) * program.source_step_w + w.residue;
    const bool inside = static_cast<uint32_t>(ih) < static_cast<uint32_t>(params_.source_h) &&
                        static_cast<uint32_t>(iw) < static_cast<uint32_t>(params_.source_w) &&
                        tile_.n_begin + image < params_.batch;
    if (!inside) return nullptr;
    return static_cast<const Element*>(params_.source) + (tile_.n_begin + image) * params_.source_stride[0] +
           int64_t{tile_.group} * params_.k_channels * params_.source_stride[1] + ih * params_.source_stride[2] +
           iw * params_.source_stride[3];
  }

  // Neighbouring lanes take neighbouring columns, kBytes of them, and walk the stage's channels.
  template <int kBytes>
  __device__ __forceinline__ void copy_columns(int32_t k_begin, uint32_t s_raw, int32_t thread) const {
    const int32_t channels = 2 * params_.k_steps * Traits::kChannels;
    const int32_t existing = min(channels, params_.k_channels - k_begin);
    const uint32_t channel_bytes = params_.raw_channel_bytes;
    const int64_t channel_step = params_.source_stride[1];
    for (int32_t unit = thread; unit < params_.num_units; unit += kLoaderThreads) {
      int32_t place;
      const Element* g_unit = locate<kBytes / sizeof(Element)>(unit, &place);
      uint32_t s_unit = s_raw + place * sizeof(Element);
      const int32_t loaded = g_unit == nullptr ? 0 : existing;
      if (g_unit != nullptr) g_unit += k_begin * channel_step;
#pragma unroll 4
      for (int32_t channel = 0; channel < channels; ++channel) {
        const bool exists = channel < loaded;
        if constexpr (kBytes >= 4) {
          ptx::cp_async_or_zero<kBytes>(s_unit, exists ? g_unit : params_.source, exists);
        } else {
          unsigned short bits = 0;
          if (exists) bits = __ldg(reinterpret_cast<const unsigned short*>(g_unit));
          ptx::store_shared_16(s_unit, bits);
        }
        if (exists) g_unit += channel_step;
        s_unit += channel_bytes;
      }
    }
  }

  // Channels that are neighbours in memory: neighbouring lanes take neighbouring planes.
  __device__ __forceinline__ void copy_channels(int32_t k_begin, uint32_t s_raw, int32_t thread) const {
#pragma unroll 2
    for (int32_t unit = thread; unit < params_.num_units; unit += kLoaderThreads) {
      int32_t plane, place;
      const int32_t position = params_.by_planes(unit, &plane);
      const Element* g_position = locate<1>(position, &place);
      const int32_t k = k_begin + plane * Traits::kChannels;
      const bool exists = g_position != nullptr && k < params_.k_channels;
      const void* g_vector = exists ? static_cast<const void*>(g_position + k) : params_.source;
      ptx::cp_async_or_zero<16>(s_raw + (plane * params_.plane_positions + place) * 16, g_vector, exists);
    }
  }

  const Params& params_;
  const Tile& tile_;
};

// 4 float32 channels of a position -> operand planes: rounded, or as a high and a low part.
template <typename Traits>
__device__ __forceinline__ void store_float32(const Params& params, uint32_t s_place, const uint32_t (&r)[4]) {
  uint32_t high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) high[i] = __float_as_uint(ptx::round_tf32(__uint_as_float(r[i])));
  ptx::store_shared(s_place, high);
  if constexpr (Traits::kSplit) {
    uint32_t low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = __float_as_uint(low_part(__uint_as_float(r[i]), __uint_as_float(high[i])));
    ptx::store_shared(s_place + 2 * params.k_steps * params.plane_positions * 16, low);
  }
}

// A raw slot -> an operand slot. Positions have the same places in both, so nothing needs to be found.
template <typename Traits>
__device__ __forceinline__ void convert_stage(const Params& params, uint32_t s_raw, uint32_t s_stage, int32_t thread) {
  const uint32_t plane_bytes = params.plane_positions * 16;
  if (params.walk == Walk::kChannels) {
    const int32_t vectors = 2 * params.k_steps * params.plane_positions;
#pragma unroll 4
    for (int32_t vector = thread; vector < vectors; vector += kLoaderThreads) {
      uint32_t r[4];
      ptx::load_shared(r, s_raw + vector * 16);
      if constexpr (Traits::kFloat32) {
        store_float32<Traits>(params, s_stage + vector * 16, r);
      } else {
        ptx::store_shared(s_stage + vector * 16, r);
      }
    }
    return;
  }
  if constexpr (Traits::kFloat32) {
    const uint32_t channel_bytes = params.raw_channel_bytes;
    for (int32_t position = thread; position < params.plane_positions; position += kLoaderThreads) {
      uint32_t s_channel = s_raw + position * 4;
      uint32_t s_place = s_stage + position * 16;
#pragma unroll 2
      for (int32_t plane = 0; plane < 2 * params.k_steps; ++plane) {
        uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; ++i, s_channel += channel_bytes) r[i] = ptx::load_shared(s_channel);
        store_float32<Traits>(params, s_place, r);
        s_place += plane_bytes;
      }
    }
  } else {
    const uint32_t channel_bytes = params.raw_channel_bytes;
    // Two positions at a time; every second quartet of lanes stores its right one first: no bank is met twice.
    const bool right_first = thread & 4;
    for (int32_t pair = thread; pair < params.plane_positions / 2; pair += kLoaderThreads) {
      uint32_t s_channel = s_raw + pair * 4;
      uint32_t s_place = s_stage + pair * 32;
#pragma unroll 1
      for (int32_t plane = 0; plane < 2 * params.k_steps; ++plane) {
        uint32_t r[8], first[4], second[4];
#pragma unroll
        for (int i = 0; i < 8; ++i, s_channel += channel_bytes) r[i] = ptx::load_shared(s_channel);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t left = __byte_perm(r[2 * i], r[2 * i + 1], 0x5410);
          const uint32_t right = __byte_perm(r[2 * i], r[2 * i + 1], 0x7632);
          first[i] = right_first ? right : left;
          second[i] = right_first ? left : right;
        }
        ptx::store_shared(s_place + (right_first ? 16 : 0), first);
        ptx::store_shared(s_place + (right_first ? 0 : 16), second);
        s_place += plane_bytes;
      }
    }
  }
}

// A walk over all stages of all tiles of this CTA.
struct StageWalk {
  int32_t number;
  int32_t chunk;
  Tile tile;

  __device__ __forceinline__ void begin(const Params& params) {
    number = blockIdx.x;
    chunk = 0;
    if (number < params.num_tiles) tile = tile_of(params, number);
  }
  __device__ __forceinline__ bool done(const Params& params) const { return number >= params.num_tiles; }
  __device__ __forceinline__ void advance(const Params& params) {
    if (++chunk < params.num_chunks) return;
    chunk = 0;
    number += gridDim.x;
    if (number < params.num_tiles) tile = tile_of(params, number);
  }
};

// The loader warps.
template <typename Traits>
__device__ __forceinline__ void load_source(const Params& params, uint32_t s_source, uint32_t s_raw,
                                            uint32_t s_barriers) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x) - kConsumerThreads;
  const uint32_t stage_bytes = Traits::kParts * 2 * params.k_steps * params.plane_positions * 16;
  Ring ring(s_barriers, params.source_slots);
  StageWalk copied;  // the next stage to copy
  copied.begin(params);
  int32_t raw_slot = 0;  // of the next stage to convert
  int32_t copy_slot = 0;  // of the next stage to copy
  auto copy_next = [&] {
    if (!copied.done(params)) {
      SourceTile<Traits>(params, copied.tile).copy(copied.chunk, s_raw + copy_slot * params.raw_bytes, thread);
      copied.advance(params);
      copy_slot = copy_slot + 1 == kRawSlots ? 0 : copy_slot + 1;
    }
    ptx::cp_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < kRawSlots - 1; ++i) copy_next();
  int32_t stages = (params.num_tiles - static_cast<int32_t>(blockIdx.x) + static_cast<int32_t>(gridDim.x) - 1) /
                   static_cast<int32_t>(gridDim.x) * params.num_chunks;
#pragma unroll 1
  for (; stages > 0; --stages) {
    ptx::cp_async_wait<kRawSlots - 2>();
    // Every loader's copies of this stage are here, and every loader has left the raw slot before it.
    ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
    copy_next();
    ring.wait_empty();  // the consumers have multiplied what was here
    convert_stage<Traits>(params, s_raw + raw_slot * params.raw_bytes, s_source + ring.slot() * stage_bytes, thread);
    raw_slot = raw_slot + 1 == kRawSlots ? 0 : raw_slot + 1;
    ptx::fence_proxy_async();  // before the tensor cores read what this thread stored
    __syncwarp();
    if (thread % 32 == 0) ptx::mbarrier_arrive(ring.full());
    ring.advance();
  }
}

// One thread: the weights in the order in which the consumers ask for them.
template <typename Traits>
__device__ __forceinline__ void load_weights(const Params& params, uint32_t s_weights, uint32_t s_barriers) {
  Ring ring(s_barriers, params.weight_slots);
  const int32_t slot_bytes = params.slot_taps * params.tap_bytes;
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const char* g_phase =
        static_cast<const char*>(params.packed) +
        (int64_t{tile.group} * params.channel_tiles.value + tile.channel_tile) * params.packed_tile_step +
        params.packed_phase_begin[tile.phase_h];
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      const char* g_chunk = g_phase + int64_t{chunk} * params.packed_chunk_step[tile.phase_h];
      for (int32_t phase = 0; phase < params.split_phases; ++phase) {
        const RunRange runs = runs_of(params, tile, phase);
        for (int32_t index = runs.begin; index < runs.end; ++index) {
          const TapRun& run = params.program.runs[index];
          const int32_t num_taps = run.num_h * run.num_w;
          for (int32_t tap = 0; tap < num_taps; tap += params.slot_taps) {
            const uint32_t bytes = min(params.slot_taps, num_taps - tap) * params.tap_bytes;
            ring.wait_empty();  // the consumers have multiplied what was here
            ptx::mbarrier_expect(ring.full(), bytes);
            ptx::bulk_copy(s_weights + ring.slot() * slot_bytes,
                           g_chunk + int64_t{run.first_tap + tap} * params.tap_bytes, bytes, ring.full());
            ring.advance();
          }
        }
      }
    }
  }
}

#endif

}  // namespace convt::wgmma_sm90a
