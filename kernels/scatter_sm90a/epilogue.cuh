// Epilogue of the scatter kernel: a slot of accumulators -> shared memory -> sum of taps along W -> global memory.
#pragma once

#include "epilogue/finish.cuh"
#include "scatter_sm90a/mainloop.cuh"

namespace convt::scatter_sm90a {

#ifdef CONVT_HAS_WGMMA

// A result column of a tile (in channels_last, of one channel): byte offset of its first tap's sum in a staged plane,
// mask of its taps, and offset in the result's row in elements from the first image's; -1 if it does not exist.
struct alignas(16) Unit {
  int32_t staged;
  uint32_t exists;
  int64_t offset;
};

// A plane of results: an H phase of a channel.
struct alignas(16) Plane {
  int64_t offset;  // elements
  int32_t phase;
  float bias;
};

__device__ __forceinline__ int32_t store_thread() { return static_cast<int32_t>(threadIdx.x) - kConsumerThreads; }

template <typename Shape>
__device__ __forceinline__ void make_planes(const Params& params, Plane* s_planes) {
  using Element = typename Shape::Element;
#pragma unroll 1
  for (int32_t i = store_thread(); i < params.num_planes; i += Shape::kStoreThreads) {
    const int32_t phase = i / params.c_out, co = i - phase * params.c_out;
    Plane plane{phase * params.result_stride[2] + co * params.result_stride[1], phase, 0.0f};
    if (params.bias != nullptr) plane.bias = element::to_accumulator(static_cast<const Element*>(params.bias)[co]);
    s_planes[i] = plane;
  }
}

template <typename Shape>
__device__ __forceinline__ void make_units(const Params& params, const Tile& tile, Unit* s_units) {
  const int32_t begin = max(tile.column * params.w.stride, params.w.padding);
  const int32_t columns = min(tile.end_column * params.w.stride, params.w.padding + params.w.out) - begin;
#pragma unroll 1
  for (int32_t i = store_thread(); i < params.num_units; i += Shape::kStoreThreads) {
    int32_t strip = 0, column = i, channel = 0, residue, nothing;
    if constexpr (Shape::kChannelsLast) column = params.by_channels(i, &channel);
    for (; column >= columns && strip < params.strips; column -= columns) ++strip;
    Unit unit{0, 0, -1};
    if (strip < params.strips && tile.image + strip < params.batch) {
      const int64_t result_column = begin + column - params.w.padding;
      unit.offset = strip * params.result_stride[0];
      if constexpr (Shape::kChannelsLast) {
        unit.offset += result_column * params.result_stride[3] + channel;
      } else {
        unit.offset += result_column;
      }
      int32_t source = params.by_stride_w(begin + column, &residue), kw = 0;
      // The first tap that reads a source column, or kernel_w.
      for (int32_t rest = residue; rest != 0; ++kw) {
        if (kw == params.term_kw) {
          kw = params.kernel_w;
          break;
        }
        rest -= params.residue_step;
        if (rest < 0) rest += params.w.stride;
      }
      source -= params.by_stride_w(max(kw * params.w.dilation - residue, 0), &nothing);
      if (kw < params.kernel_w) {
        unit.staged = 4 * ((channel * params.kernel_w + kw) * kScatterPlane + (strip << params.strip_log2) + source -
                           tile.source_column);
      }
      for (int32_t term = 0; term < params.terms && kw < params.kernel_w; ++term, kw += params.term_kw) {
        if (source >= 0 && source < params.w.in) unit.exists |= 1u << term;
        source -= params.term_source;
      }
    }
    s_units[i] = unit;
  }
}

// Writes slot 0, which is complete, to shared memory.
template <typename Shape>
__device__ __forceinline__ void stage_slot(const Accumulators<Shape>& acc, const Params& params, uint32_t s_staged) {
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32, warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t column = lane % 4 * 2;
  const int32_t position = warp * 16 + lane / 4 * (Shape::kChannelsLast ? 1 : 2);
  const uint32_t s_mine = s_staged + 4 * (column * kScatterPlane + position);
#pragma unroll
  for (int j = 0; j < Shape::kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (8 * j + column + i >= params.slot_columns) continue;
      const uint32_t two[2] = {__float_as_uint(acc[4 * j + i]), __float_as_uint(acc[4 * j + 2 + i])};
      const uint32_t s_two = s_mine + 4 * (8 * j + i) * kScatterPlane;
      if constexpr (Shape::kChannelsLast) {
        ptx::store_shared(s_two, two[0]);
        ptx::store_shared(s_two + 4 * 8, two[1]);
      } else {
        ptx::store_shared(s_two, two);
      }
    }
  }
}

// Moves the other slots down by one. Tap rows that a phase does not have were multiplied by zero weights, which turn
// NaN and Inf into NaN. Their products are dropped.
template <typename Shape>
__device__ __forceinline__ void move_slots(Accumulators<Shape>& acc, const Params& params) {
  constexpr int kSlotAccumulators = Shape::kSlotAccumulators;
  const int32_t column = static_cast<int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int slot = 1; slot < Shape::kSlots; ++slot) {
#pragma unroll
    for (int i = 0; i < kSlotAccumulators; ++i)
      acc[(slot - 1) * kSlotAccumulators + i] = acc[slot * kSlotAccumulators + i];
    const int32_t columns =
        max(0, min(params.kernel_h - slot * params.h.stride, params.h.stride)) * params.c_out * params.kernel_w;
    if (columns >= params.slot_columns) continue;
#pragma unroll
    for (int i = 0; i < kSlotAccumulators; ++i) {
      if (i / 4 * 8 + column + i % 2 >= columns) acc[(slot - 1) * kSlotAccumulators + i] = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < kSlotAccumulators; ++i) acc[(Shape::kSlots - 1) * kSlotAccumulators + i] = 0;
}

// What a thread stores of several planes in every row.
template <int kPlanes>
struct StoredPlanes {
  int64_t offset[kPlanes];
  int32_t phase[kPlanes];  // h.out + padding or more: no plane
  float bias[kPlanes];

  __device__ __forceinline__ void load(const Params& params, const Plane* s_planes, int32_t begin) {
#pragma unroll
    for (int j = 0; j < kPlanes; ++j) {
      const Plane plane = s_planes[min(begin + j, params.num_planes - 1)];
      offset[j] = plane.offset;
      phase[j] = begin + j < params.num_planes ? plane.phase : params.h.out + params.h.padding;
      bias[j] = plane.bias;
    }
  }
};

// Stores the position rows of all tiles in NCHW. kTerms: params.terms, or 0 for any; kPlanes: planes in registers at a
// time. If a thread has only one column and one batch of planes, they stay in registers.
template <typename Shape, int kTerms, int kPlanes>
__device__ __forceinline__ void store_rows(const Params& params, uint32_t s_staged, Unit* s_units,
                                           const Plane* s_planes, Ring ring) {
  using Element = typename Shape::Element;
  const uint32_t plane_bytes = params.kernel_w * 4 * kScatterPlane;
  const int32_t terms = kTerms > 0 ? kTerms : params.terms;
  const int32_t filled = min(params.kernel_h, params.h.stride) * params.c_out;
  const bool one_column = params.num_units <= Shape::kStoreThreads, one_batch = params.num_planes <= kPlanes;
  StoredPlanes<kPlanes> planes;
  if (one_batch) planes.load(params, s_planes, 0);
#pragma unroll 1
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    if (number != static_cast<int32_t>(blockIdx.x)) {
      ptx::named_barrier(3, Shape::kStoreThreads);  // all threads have used the table
      make_units<Shape>(params, tile, s_units);
      ptx::named_barrier(3, Shape::kStoreThreads);  // the table is complete
    }
    Unit unit = s_units[min(store_thread(), params.num_units - 1)];
#pragma unroll 1
    for (int32_t row = tile.row; row < tile.end_row; ++row) {
      const int32_t first = row * params.h.stride - params.h.padding;
      auto* g_row =
          static_cast<Element*>(params.result) + tile.image * params.result_stride[0] + first * params.result_stride[2];
      ring.wait_full();
      const uint32_t s_row = s_staged + ring.slot() * params.staged_bytes;
#pragma unroll 1
      for (int32_t begin = 0; begin < params.num_planes; begin += kPlanes) {
        if (!one_batch) planes.load(params, s_planes, begin);
#pragma unroll 1
        for (int32_t i = store_thread(); i < params.num_units; i += Shape::kStoreThreads) {
          if (!one_column) unit = s_units[i];
          if (unit.offset < 0) continue;
          float sums[kPlanes] = {};
          int32_t s_term = unit.staged;
#pragma unroll
          for (int32_t term = 0; term < terms; ++term, s_term += params.term_step) {
            // A missing term loads another sum and does not add it.
            const bool has_term = unit.exists >> term & 1;
            const uint32_t s_from = s_row + (has_term ? s_term : 0);
#pragma unroll
            for (int j = 0; j < kPlanes; ++j) {
              const float product =
                  __uint_as_float(ptx::load_shared(s_from + min(begin + j, filled - 1) * plane_bytes));
              if (has_term) sums[j] = element::add(sums[j], product);
            }
          }
#pragma unroll
          for (int j = 0; j < kPlanes; ++j) {
            const float sum = begin + j < filled ? sums[j] : 0.0f;  // phases without taps store the bias
            const int32_t h = first + planes.phase[j];
            if (h < 0 || h >= params.h.out) continue;
            g_row[planes.offset[j] + unit.offset] = element::to_element<Element>(epilogue::finish(sum, planes.bias[j]));
          }
        }
      }
      ptx::mbarrier_arrive(ring.empty());
      ring.advance();
    }
  }
}

// Builds the tables of all planes and of the CTA's first tile, before the first store.
template <typename Shape>
__device__ __forceinline__ void make_tables(const Params& params, unsigned char* s_bytes) {
  make_units<Shape>(params, tile_of(params, blockIdx.x), reinterpret_cast<Unit*>(s_bytes + params.unit_begin));
  make_planes<Shape>(params, reinterpret_cast<Plane*>(s_bytes + params.plane_begin));
}

// What a thread stores of each row in channels_last. The results of a row are contiguous: column by column, channels
// innermost.
template <int kUnits>
struct StoredUnits {
  Unit units[kUnits];  // offset -1: no result
  float bias[kUnits];

  template <typename Shape>
  __device__ __forceinline__ void load(const Params& params, const Unit* s_units, const Plane* s_planes,
                                       int32_t begin) {
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      const int32_t i = begin + j * Shape::kStoreThreads + store_thread();
      int32_t channel;
      params.by_channels(i, &channel);
      units[j] = s_units[min(i, params.num_units - 1)];
      if (i >= params.num_units) units[j].offset = -1;
      bias[j] = s_planes[channel].bias;
    }
  }
};

// Stores the position rows of all tiles in channels_last. kTerms: params.terms, or 0 for any; kUnits: units in
// registers at a time. If a thread has only one batch of units, they stay in registers.
template <typename Shape, int kTerms, int kUnits>
__device__ __forceinline__ void store_pixels(const Params& params, uint32_t s_staged, Unit* s_units,
                                             const Plane* s_planes, Ring ring) {
  using Element = typename Shape::Element;
  const uint32_t phase_bytes = params.c_out * params.kernel_w * 4 * kScatterPlane;
  const int32_t terms = kTerms > 0 ? kTerms : params.terms;
  const int32_t filled = min(params.kernel_h, params.h.stride);
  const bool one_batch = params.num_units <= kUnits * Shape::kStoreThreads;
  StoredUnits<kUnits> stored;
#pragma unroll 1
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    if (number != static_cast<int32_t>(blockIdx.x)) {
      ptx::named_barrier(3, Shape::kStoreThreads);  // all threads have used the table
      make_units<Shape>(params, tile, s_units);
      ptx::named_barrier(3, Shape::kStoreThreads);  // the table is complete
    }
    if (one_batch) stored.template load<Shape>(params, s_units, s_planes, 0);
#pragma unroll 1
    for (int32_t row = tile.row; row < tile.end_row; ++row) {
      const int32_t first = row * params.h.stride - params.h.padding;
      auto* g_tile = static_cast<Element*>(params.result) + tile.image * params.result_stride[0];
      ring.wait_full();
      const uint32_t s_row = s_staged + ring.slot() * params.staged_bytes;
#pragma unroll 1
      for (int32_t begin = 0; begin < params.num_units; begin += kUnits * Shape::kStoreThreads) {
        if (!one_batch) stored.template load<Shape>(params, s_units, s_planes, begin);
#pragma unroll 1
        for (int32_t phase = 0; phase < params.h.stride; ++phase) {
          const int32_t h = first + phase;
          if (h < 0 || h >= params.h.out) continue;
          float sums[kUnits] = {};
          if (phase < filled) {  // other phases store the bias
#pragma unroll
            for (int32_t term = 0; term < terms; ++term) {
#pragma unroll
              for (int j = 0; j < kUnits; ++j) {
                // A missing term loads another sum and does not add it.
                const bool has_term = stored.units[j].exists >> term & 1;
                const uint32_t s_term = has_term ? stored.units[j].staged + term * params.term_step : 0;
                const float product = __uint_as_float(ptx::load_shared(s_row + phase * phase_bytes + s_term));
                if (has_term) sums[j] = element::add(sums[j], product);
              }
            }
          }
          Element* g_row = g_tile + h * params.result_stride[2];
#pragma unroll
          for (int j = 0; j < kUnits; ++j) {
            if (stored.units[j].offset < 0) continue;
            g_row[stored.units[j].offset] = element::to_element<Element>(epilogue::finish(sums[j], stored.bias[j]));
          }
        }
      }
      ptx::mbarrier_arrive(ring.empty());
      ring.advance();
    }
  }
}

// Stores all tiles of the CTA.
template <typename Shape>
__device__ __forceinline__ void store_tiles(const Params& params, unsigned char* s_bytes, Ring ring) {
  auto* s_units = reinterpret_cast<Unit*>(s_bytes + params.unit_begin);
  const auto* s_planes = reinterpret_cast<const Plane*>(s_bytes + params.plane_begin);
  const uint32_t s_staged = ptx::shared_address(s_bytes + params.staged_begin);
  if constexpr (Shape::kChannelsLast) {
    switch (params.terms) {
      case 2: return store_pixels<Shape, 2, Shape::kSplit ? 4 : 3>(params, s_staged, s_units, s_planes, ring);
      case 3: return store_pixels<Shape, 3, 2>(params, s_staged, s_units, s_planes, ring);
      default: return store_pixels<Shape, 0, 2>(params, s_staged, s_units, s_planes, ring);
    }
  } else {
    switch (params.terms) {
      case 1: return store_rows<Shape, 1, 4>(params, s_staged, s_units, s_planes, ring);
      case 2: return store_rows<Shape, 2, 6>(params, s_staged, s_units, s_planes, ring);
      case 3: return store_rows<Shape, 3, 3>(params, s_staged, s_units, s_planes, ring);
      default: return store_rows<Shape, 0, 3>(params, s_staged, s_units, s_planes, ring);
    }
  }
}

#endif

}  // namespace convt::scatter_sm90a
