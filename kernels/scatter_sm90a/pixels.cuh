// The scatter engine in channels_last: a position's 128 bytes of channels are a row of the first operand as they lie in
// memory, and results of a row are one run, column by column, channels innermost.
#pragma once

#include "scatter_sm90a/epilogue.cuh"

namespace convt::scatter_sm90a {

#ifdef CONVT_HAS_WGMMA

// All products of a source row. TF32 was rounded by the copies.
template <typename Shape>
__device__ __forceinline__ void multiply_pixel_row(Accumulators<Shape>& sums, const Params& params, uint32_t s_begin,
                                                   const ptx::MatrixDescriptor& weights, Ring* ring) {
  auto b = weights;
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    ring->wait_full();
    const auto a = ptx::MatrixDescriptor::of_rows(s_begin + ring->slot() * params.stage_bytes, kScatterRowBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kScatterBatch; ++i, b = b.moved(2 * Shape::kN)) {
      ptx::wgmma<typename Shape::Element>(sums, a.moved(2 * i), b, true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pipeline::release(ring->empty());
    ring->advance();
  }
}

// Results that a thread stores of each row.
template <int kUnits>
struct StoredUnits {
  Unit units[kUnits];  // offset -1: no such result
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

// The results of all tiles' position rows. kTerms: params.terms, or 0 for any; kUnits: that are in registers at once,
// and stay there where a thread has no others.
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
      ptx::named_barrier(3, Shape::kStoreThreads);  // the table has been used
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
          if (phase < filled) {  // others are the bias
#pragma unroll
            for (int32_t term = 0; term < terms; ++term) {
#pragma unroll
              for (int j = 0; j < kUnits; ++j) {
                // In the place of a sum that does not exist another is read, and not added.
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
            g_row[stored.units[j].offset] = element::to_element<Element>(element::add(sums[j], stored.bias[j]));
          }
        }
      }
      ptx::mbarrier_arrive(ring.empty());
      ring.advance();
    }
  }
}

// All tiles of the CTA.
template <typename Shape>
__device__ __forceinline__ void store_pixel_tiles(const Params& params, unsigned char* s_bytes, Ring ring) {
  auto* s_units = reinterpret_cast<Unit*>(s_bytes + params.unit_begin);
  const auto* s_planes = reinterpret_cast<const Plane*>(s_bytes + params.plane_begin);
  const uint32_t s_staged = ptx::shared_address(s_bytes + params.staged_begin);
  switch (params.terms) {
    case 2: return store_pixels<Shape, 2, Shape::kSplit ? 4 : 3>(params, s_staged, s_units, s_planes, ring);
    case 3: return store_pixels<Shape, 3, 2>(params, s_staged, s_units, s_planes, ring);
    default: return store_pixels<Shape, 0, 2>(params, s_staged, s_units, s_planes, ring);
  }
}

#endif

}  // namespace convt::scatter_sm90a
