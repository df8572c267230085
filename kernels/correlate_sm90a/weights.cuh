// Common base of the correlate kernels: a CTA's weights and units, its ring of stages, and the store to its slab.
// Called by: rows.cuh, pixels.cuh, transposed.cuh. Must not know: the layout of a stage.
#pragma once

#include "correlate_sm90a/params.h"
#include "hopper/kernel.cuh"
#include "pipeline/ring.cuh"
#include "ptx/shared.cuh"

namespace convt::correlate_sm90a {

// The weights of a consumer warp, relative to the CTA's first.
struct Part {
  int32_t co;  // first of 16 output channels
  int32_t kh;
  int32_t kw;  // in units of kTaps taps

  __device__ __forceinline__ Part(const CorrelateLayout& layout, int32_t warp) {
    const int32_t warps = layout.co_rows / 16, part = warp / warps, rest = part / layout.co_parts;
    co = (part - rest * layout.co_parts) * layout.co_rows + (warp - part * warps) * 16;
    kw = rest / layout.kh_parts;
    kh = rest - kw * layout.kh_parts;
  }
};

// First pixel of a unit.
struct Unit {
  int32_t image, row, column;

  __device__ __forceinline__ Unit(const CorrelateLayout& layout, int32_t number) {
    const int32_t rest = number / layout.strips;
    image = rest / layout.row_units;
    row = (rest - image * layout.row_units) * layout.rows;
    column = (number - rest * layout.strips) * layout.columns;
  }
};

template <int kTapsValue, int kColumnsValue, int kConsumersValue>
struct Weights {
  using Params = correlate_sm90a::Params;
  static constexpr int kTaps = kTapsValue;  // per warpgroup
  static constexpr int kColumns = kColumnsValue;  // input channels
  static constexpr int kConsumers = kConsumersValue;
  // Registers: 2 * 232 + 40 = 3 * 168, and 3 * 160 + 24 = 504 of 512.
  static constexpr hopper::Roles kRoles{correlate_threads(kConsumers), 1, kConsumers, kConsumers == 3 ? 160 : 232,
                                        kConsumers == 3 ? 24 : 40};

#ifdef CONVT_HAS_WGMMA
  const Params& params;
  const CorrelateLayout& layout;
  const uint32_t s_stages;
  int32_t group, co, ci, kh, kw;  // first of the CTA
  int32_t chunk, first_unit, end_unit;

  __device__ __forceinline__ Weights(const Params& params, const unsigned char* s_bytes)
      : params(params), layout(params.layout), s_stages(ptx::shared_address(s_bytes)) {
    int32_t rest = static_cast<int32_t>(blockIdx.x);
    auto digit = [&rest](int32_t count) {
      const int32_t quotient = rest / count, value = rest - quotient * count;
      rest = quotient;
      return value;
    };
    co = digit(layout.co_tiles) * layout.co_parts * layout.co_rows;
    ci = digit(layout.ci_tiles) * kColumns;
    kw = digit(layout.kw_tiles) * layout.kw_parts * kTaps;
    kh = digit(layout.kh_tiles) * layout.kh_parts;
    group = digit(layout.channels / layout.group_ci);
    chunk = rest;
    first_unit = chunk * layout.units_per_chunk;
    end_unit = min(first_unit + layout.units_per_chunk, layout.num_units);
  }

  __device__ __forceinline__ pipeline::Ring ring() const { return {s_stages + layout.barriers_begin, layout.slots}; }

  // Row and column of grad_output that the CTA's first tap reads for input row 0 and column 0.
  __device__ __forceinline__ int32_t first_row() const {
    return kh * layout.h.dilation - layout.h.padding + layout.planes.after_tap(kh);
  }
  __device__ __forceinline__ int32_t first_column() const { return kw * layout.w.dilation - layout.w.padding; }

  __device__ __forceinline__ void init_barriers() const {
    if (threadIdx.x == 0) {
      pipeline::init_slots(s_stages + layout.barriers_begin, 0, layout.slots, 1, 4 * kConsumers);
      ptx::fence_mbarrier_init();
    }
  }

  __device__ __forceinline__ void assign_work() const {}

  // Eight lanes store one sector of the slab. Later launches accumulate into it.
  __device__ __forceinline__ void store(const float (&acc)[kTaps][kColumns / 2], const Part& part) const {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t own_co = co + part.co + lane / 4;
    const int32_t first_ci = ci + lane % 4 * 2;
    const int32_t own_kh = kh + part.kh, own_kw = kw + part.kw * kTaps;
    if (own_kh >= layout.h.kernel) return;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if (own_kw + tap >= layout.w.kernel) continue;
      const int64_t plane = (int64_t{chunk} * layout.h.kernel + own_kh) * layout.w.kernel + own_kw + tap;
      float* g_plane = params.slabs + (plane * layout.channels + group * layout.group_ci) * layout.group_co + own_co;
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        const int32_t of_ci = first_ci + i / 4 * 8 + i % 2, further = i / 2 % 2 * 8;
        if (of_ci < layout.group_ci && own_co + further < layout.group_co) {
          float* g_sum = g_plane + int64_t{of_ci} * layout.group_co + further;
          *g_sum = params.adds ? *g_sum + acc[tap][i] : acc[tap][i];
        }
      }
    }
  }
#endif
};

}  // namespace convt::correlate_sm90a
