// The source where columns are neighbours in memory (NCHW): its rows come by asynchronous copies into raw slots,
// [channel][window row][columns], whole 16-byte vectors of memory wherever a row begins in them. From there every
// position of the operand planes is gathered: the transposition to [position][channels], the residues of a stride and
// the rows' different beginnings are one and the same step.
#pragma once

#include "pipeline/copy_vector.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"
#include "wgmma_sm90a/tile.cuh"

namespace convt::wgmma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Where the first columns of a tile's window rows lie, in elements from the tile's corner; kOutside for rows and images
// that do not exist.
__device__ __forceinline__ void list_lines(const Params& params, const Tile& tile, int32_t* s_lines, int32_t thread) {
  const TapProgram& program = params.program;
  for (int32_t line = thread; line < params.raw_lines; line += kLoaderThreads) {
    SourcePlace place;
    int32_t row;
    const int32_t sub_h = params.by_images(params.by_rows(line, &row), &place.image);
    const AxisWindow& h = program.window_h[program.sub_h > 1 ? sub_h : tile.phase_h];
    place.row = (tile.p_h_begin + h.shift + row) * program.source_step_h + h.residue;
    place.column = tile.p_w_begin * program.source_step_w + params.first_column;
    s_lines[line] =
        row_exists(params, tile, place.image, place.row) ? offset_from_corner(params, tile, place) : kOutside;
  }
}

// Copies one stage of a tile into a raw slot. A thread takes a vector (or, where memory forbids that, an element) of a
// row and walks a share of the stage's channels; neighbouring lanes take neighbouring columns.
template <typename Traits, bool kGather>
__device__ __forceinline__ void copy_rows(const Params& params, const Tile& tile, int32_t chunk, const int32_t* s_lines,
                                          uint32_t s_raw, int32_t thread) {
  using Element = typename Traits::Element;
  constexpr int32_t kVector = 16 / sizeof(Element);
  const auto* g_source = static_cast<const Element*>(params.source);
  const int32_t k_begin = chunk * 2 * params.k_steps * Traits::kChannels;
  const int64_t corner = corner_of(params, tile) + k_begin * params.source_stride[1];
  const int32_t first_column = tile.p_w_begin * params.program.source_step_w + params.first_column;
  const int64_t channel_step = params.source_stride[1];
  const int32_t items = params.copy_units * params.copy_shares;
#pragma unroll 1
  for (int32_t item = thread; item < items; item += kLoaderThreads) {
    int32_t unit, place_in_line;
    const int32_t first = params.by_copy_units(item, &unit) * params.copy_channels;
    const int32_t line = params.by_line_units(unit, &place_in_line);
    const int32_t offset = s_lines[line];
    const int32_t existing = offset == kOutside ? 0 : params.k_channels - k_begin - first;
    const uint32_t channel_bytes = params.raw_channel_bytes;
    uint32_t s_unit = s_raw + first * channel_bytes;
    int64_t at = corner + first * channel_step + offset;  // of the source's elements
    if (params.vectors) {
      s_unit += unit * 16;
      at += place_in_line * kVector;
      bool whole, inside = true;
      if constexpr (kGather) {
        const int64_t last = at + int64_t{params.copy_channels - 1} * channel_step;
        whole = at >= 0 && last + kVector <= params.source_elements;
      } else {  // vectors lie in their row, or outside
        const int32_t column = first_column + place_in_line * kVector;
        inside = static_cast<uint32_t>(column) < static_cast<uint32_t>(params.source_w);
        whole = true;
      }
      if (whole) {
        const auto* g_unit = reinterpret_cast<const char*>(g_source + at);
        const int64_t step_bytes = channel_step * static_cast<int64_t>(sizeof(Element));
#pragma unroll 1
        for (int32_t channel = 0; channel < params.copy_channels; channel += 4) {
          uint32_t s_vector[4];
          const void* g_vector[4];
          bool exists[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            g_vector[i] =
                reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(g_unit + i * step_bytes) & ~uintptr_t{15});
            s_vector[i] = s_unit + i * channel_bytes;
            exists[i] = inside && channel + i < existing;
          }
          ptx::cp_async_or_zero_4(s_vector, g_vector, exists);
          g_unit += 4 * step_bytes;
          s_unit += 4 * channel_bytes;
        }
      } else {  // at the source's ends: never a byte outside
#pragma unroll 1
        for (int32_t channel = 0; channel < params.copy_channels; ++channel) {
          const int64_t aligned = at & ~int64_t{kVector - 1};
#pragma unroll 1
          for (int32_t i = 0; i < kVector; ++i) {
            const bool exists = channel < existing && aligned + i >= 0 && aligned + i < params.source_elements;
            pipeline::copy_vector<sizeof(Element)>(s_unit + i * sizeof(Element), g_source + aligned + i, exists);
          }
          at += channel_step;
          s_unit += channel_bytes;
        }
      }
    } else {
      s_unit += unit * sizeof(Element);
      at += place_in_line * params.source_stride[3];
      const bool inside = static_cast<uint32_t>(first_column + place_in_line) < static_cast<uint32_t>(params.source_w);
#pragma unroll 4
      for (int32_t channel = 0; channel < params.copy_channels; ++channel) {
        pipeline::copy_vector<sizeof(Element)>(s_unit, g_source + at, inside && channel < existing);
        at += channel_step;
        s_unit += channel_bytes;
      }
    }
  }
}

// Where the positions of the operand planes lie in a raw channel. What a position's row has in its first vector before
// it differs from channel to channel where channels are no whole vectors apart: "before" is that of channel 0.
struct RawPlace {
  static __device__ __forceinline__ int32_t packed(int32_t element, int32_t before) { return element << 3 | before; }
  int32_t value;  // or negative: outside
  __device__ __forceinline__ bool inside() const { return value >= 0; }
  __device__ __forceinline__ int32_t element() const { return value >> 3; }
  __device__ __forceinline__ int32_t before() const { return value & 7; }
};

template <typename Traits>
__device__ __forceinline__ void list_places(const Params& params, const Tile& tile, int32_t* s_places, int32_t thread) {
  const int64_t corner = corner_of(params, tile);
  for (int32_t index = thread; index < params.num_places; index += kLoaderThreads) {
    SourcePlace place = source_place(params, tile, index);
    const int32_t element = place.line * params.raw_pitch + place.window_column;
    place.column -= place.window_column;
    const auto line_begin = static_cast<uint32_t>(corner + offset_from_corner(params, tile, place));
    const auto before = static_cast<int32_t>(line_begin & params.vector_mask);
    s_places[index] = place.inside ? RawPlace::packed(element, before) : kOutside;
  }
}

// The addresses of a position in the raw slot's first plane.
template <typename Traits, bool kGather>
__device__ __forceinline__ void find_channels(const Params& params, RawPlace place, uint32_t s_raw,
                                              uint32_t (&s_channel)[Traits::kChannels]) {
  using Element = typename Traits::Element;
  const uint32_t channel_step = static_cast<uint32_t>(params.source_stride[1]);
#pragma unroll
  for (int i = 0; i < Traits::kChannels; ++i) {
    const uint32_t before = kGather ? (place.before() + i * channel_step) & params.vector_mask : 0;
    s_channel[i] = s_raw + i * params.raw_channel_bytes + (place.element() + before) * sizeof(Element);
  }
}

// Position -> 4 channels of each of `planes` planes, two planes at a time: all loads before the first store.
template <typename Traits, bool kGather>
__device__ __forceinline__ void convert_float32(const Params& params, RawPlace place, uint32_t s_raw, uint32_t s_place,
                                                int32_t planes) {
  const uint32_t plane_bytes = params.plane_positions * 16;
  const uint32_t raw_step = 4 * params.raw_channel_bytes;
  uint32_t s_channel[4];
  find_channels<Traits, kGather>(params, place, s_raw, s_channel);
#pragma unroll 1
  for (int32_t plane = 0; plane < planes; plane += 2) {
    uint32_t r[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) r[0][i] = ptx::load_shared(s_channel[i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) r[1][i] = ptx::load_shared(s_channel[i] + raw_step);
    store_float32<Traits>(params, s_place, r[0]);
    store_float32<Traits>(params, s_place + plane_bytes, r[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) s_channel[i] += 2 * raw_step;
    s_place += 2 * plane_bytes;
  }
}

// Position -> 8 half-precision channels of each plane, or of a pair two neighbouring positions, which are one word of
// every channel. Every second quartet of lanes stores a pair's right one first, so that no bank is met twice.
template <typename Traits, bool kGather, bool kPair>
__device__ __forceinline__ void convert_half(const Params& params, RawPlace place, uint32_t s_raw, uint32_t s_place,
                                             int32_t planes, bool right_first) {
  const uint32_t plane_bytes = params.plane_positions * 16;
  const uint32_t raw_step = 8 * params.raw_channel_bytes;
  uint32_t s_channel[8];
  find_channels<Traits, kGather>(params, place, s_raw, s_channel);
#pragma unroll 1
  for (int32_t plane = 0; plane < planes; ++plane) {
    uint32_t r[8], first[4], second[4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      r[i] = kPair ? ptx::load_shared(s_channel[i]) : ptx::load_shared_16(s_channel[i]);
      s_channel[i] += raw_step;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t left = __byte_perm(r[2 * i], r[2 * i + 1], 0x5410);
      const uint32_t right = __byte_perm(r[2 * i], r[2 * i + 1], 0x7632);
      first[i] = right_first ? right : left;
      second[i] = right_first ? left : right;
    }
    ptx::store_shared(s_place + (right_first ? 16 : 0), first);
    if constexpr (kPair) ptx::store_shared(s_place + (right_first ? 0 : 16), second);
    s_place += plane_bytes;
  }
}

// A raw slot -> an operand slot. A thread takes a position (in half precision two, where they are a word) and a share
// of the stage's planes.
template <typename Traits, bool kGather>
__device__ __forceinline__ void convert_stage(const Params& params, const int32_t* s_places, uint32_t s_raw,
                                              uint32_t s_stage, int32_t thread) {
  const uint32_t plane_bytes = params.plane_positions * 16;
  const int32_t planes = params.convert_planes;
  const int32_t items = params.convert_units * params.convert_shares;
  auto find = [&](int32_t item, int32_t* position, int32_t* plane) {
    int32_t unit;
    *plane = params.by_convert_units(item, &unit) * planes;
    *position = unit * params.unit_positions;
    // Without a list, a position has its place in the plane, and what lies outside is zero already.
    return RawPlace{kGather ? s_places[*position] : RawPlace::packed(*position, 0)};
  };
  if (thread >= items) return;
  int32_t position, plane;
  RawPlace place = find(thread, &position, &plane);
#pragma unroll 1
  for (int32_t item = thread; item < items; item += kLoaderThreads) {
    const uint32_t s_place = s_stage + plane * plane_bytes + position * 16;
    const uint32_t s_planes = s_raw + plane * Traits::kChannels * params.raw_channel_bytes;
    const RawPlace next = find(min(item + kLoaderThreads, items - 1), &position, &plane);  // on its way meanwhile
    if (kGather && !place.inside()) {
      const uint32_t zeros[4] = {0, 0, 0, 0};
      for (int32_t term = 0; term < Traits::kTerms; ++term) {
        for (int32_t i = 0; i < planes; ++i) {
          const uint32_t s_zeros = s_place + (term * 2 * params.k_steps + i) * plane_bytes;
          ptx::store_shared(s_zeros, zeros);
          if (params.unit_positions == 2) ptx::store_shared(s_zeros + 16, zeros);
        }
      }
    } else if constexpr (Traits::kFloat32) {
      convert_float32<Traits, kGather>(params, place, s_planes, s_place, planes);
    } else if (params.unit_positions == 2) {
      convert_half<Traits, kGather, true>(params, place, s_planes, s_place, planes, thread & 4);
    } else {
      convert_half<Traits, kGather, false>(params, place, s_planes, s_place, planes, false);
    }
    place = next;
  }
}

// All stages of all tiles by way of raw slots. Stages of all of these but one are always on their way, also across
// tiles, so that memory has requests to work on.
template <typename Traits, bool kGather>
__device__ __forceinline__ void load_columns(const Params& params, uint32_t s_source, uint32_t s_raw, int32_t* s_lists,
                                             Ring ring, int32_t thread) {
  const uint32_t stage_bytes = Traits::kTerms * 2 * params.k_steps * params.plane_positions * 16;
  int32_t* s_places = s_lists;
  int32_t* s_lines = s_lists + params.num_places;
  StageWalk copied, converted;  // the next stages
  copied.begin(params);
  converted.begin(params);
  int32_t convert_slot = 0, copy_slot = 0;
  auto copy_next = [&] {
    if (!copied.done(params)) {
      if (copied.chunk == 0) {
        ptx::named_barrier(kLoaderBarrier, kLoaderThreads);  // everybody has copied the tile before
        list_lines(params, copied.tile, s_lines, thread);
        ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
      }
      copy_rows<Traits, kGather>(params, copied.tile, copied.chunk, s_lines, s_raw + copy_slot * params.raw_bytes,
                                 thread);
      copied.advance(params);
      copy_slot = copy_slot + 1 == params.raw_slots ? 0 : copy_slot + 1;
    }
    ptx::cp_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < params.raw_slots - 1; ++i) copy_next();
#pragma unroll 1
  while (!converted.done(params)) {
    ptx::cp_async_wait_all_but(params.raw_slots - 2);
    // Every loader's copies of this stage are here, and every loader has left the raw slot before it.
    ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
    copy_next();
    if (kGather && converted.chunk == 0) {
      list_places<Traits>(params, converted.tile, s_places, thread);
      ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
    }
    ring.wait_empty();  // the consumers have multiplied what was here
    convert_stage<Traits, kGather>(params, s_places, s_raw + convert_slot * params.raw_bytes,
                                   s_source + ring.slot() * stage_bytes, thread);
    convert_slot = convert_slot + 1 == params.raw_slots ? 0 : convert_slot + 1;
    announce(ring, thread);
    ring.advance();
    converted.advance(params);
  }
}

#endif

}  // namespace convt::wgmma_sm90a
