// Gradient of the weight of depthwise layers in channels_last:
//     slab[kh, kw] = sum over a thread's pixels, rows before columns, of  x[ih, iw] * gy[ih * S - padding + kh, ...],
//     then over the threads of the CTA that have the same channels, by their columns ascending
// Rows of grad_output stream from top to bottom, each for all pixel rows whose taps read it. The pixel rows and the
// accumulators are in registers. The loop has no branches, because after a branch the compiler waits for all loads
// instead of the oldest. Nonexistent elements are therefore multiplied as zeros. If a sum becomes NaN, it is recomputed
// from the existing terms. Warps whose columns all exist load unconditionally: a predicated load must preserve its
// register's old value, so it waits for that value's last use.
//
// Launched by depthwise/launch.cpp.
#pragma once

#include "depthwise/channels_last.cuh"

namespace convt::depthwise {

template <typename Traits>
using ChannelsLastAccumulators = float[Traits::kKernel][Traits::kKernel][Traits::kVector];

// Copies a row, or zeros if it does not exist.
template <typename Channels, int kColumns>
__device__ __forceinline__ void copy_if(bool exists, const Channels (&r_from)[kColumns], Channels (&r_to)[kColumns]) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int w = 0; w < Channels::kWords; ++w) r_to[i].word[w] = exists ? r_from[i].word[w] : 0;
  }
}

template <typename Traits, bool kWhole>
struct ChannelsLastGradWeight {
  using Element = typename Traits::Element;
  static constexpr int kKernel = Traits::kKernel, kStride = Traits::kStride, kTaps = Traits::kTaps;
  static constexpr int kVector = Traits::kVector, kPositions = Traits::kPositions, kAhead = Traits::kRowsAhead;
  // Pixel rows in registers: those that read the current row of grad_output, and those in flight. After a group of
  // pixel rows and their rows of grad_output, every row is in the same registers again. Nothing is moved, because a
  // move would wait for loads in flight.
  static constexpr int kPixelRows = kTaps + kAhead / kStride;
  static constexpr int kGroup = channels_last_group(kKernel, kStride, kAhead);
  static_assert(kAhead % kStride == 0 && kGroup % kPixelRows == 0 && kGroup * kStride % kAhead == 0);
  using Rows = ChannelsLastRows<Traits, (kPositions - 1) * kStride + kKernel, kWhole>;
  using Pixels = ChannelsLastRows<Traits, kPositions, kWhole>;

  const ChannelsLastParams& params;
  const ChannelsLastPlace& place;
  ChannelsLastAccumulators<Traits>& r_acc;
  typename Rows::Row r_rows[kAhead];
  typename Pixels::Row r_pixels[kPixelRows];

  // Processes the next kGroup pixel rows, from ih on, with the rows of grad_output from `row` on. kInside: all of them
  // exist and belong to the CTA.
  template <bool kInside>
  __device__ __forceinline__ void add_group(Rows& rows, Pixels& pixels, int32_t& row, int32_t& ih) {
#pragma unroll
    for (int slot = 0; slot < kGroup * kStride; ++slot) {
      auto& r_row = r_rows[slot % kAhead];
      typename Rows::Row r_outputs;
      copy_if(kInside || (row >= 0 && row < params.h.out), r_row, r_outputs);
#pragma unroll
      for (int later = 0; later < kTaps; ++later) {
        const int k_h = kKernel - kStride + slot % kStride - later * kStride;
        if (k_h < 0) continue;
        typename Pixels::Row r_inputs;
        copy_if(kInside || (ih + later >= place.row && ih + later < place.row_end),
                r_pixels[(slot / kStride + later) % kPixelRows], r_inputs);
#pragma unroll
        for (int p = 0; p < kPositions; ++p) {
#pragma unroll
          for (int k_w = 0; k_w < kKernel; ++k_w) {
#pragma unroll
            for (int i = 0; i < kVector; ++i) {
              r_acc[k_h][k_w][i] =
                  element::fused_multiply_add(r_inputs[p][i], r_outputs[p * kStride + k_w][i], r_acc[k_h][k_w][i]);
            }
          }
        }
      }
      ++row;
      // Load a row after the last use of its registers. Otherwise the compiler would allocate others and add moves.
      rows.load(r_row);
      if (slot % kStride == kStride - 1) {
        ++ih;
        pixels.load(r_pixels[slot / kStride % kPixelRows]);
      }
    }
  }

  __device__ __forceinline__ void add_all() {
    // The first rows of grad_output are also read by pixel rows above the first, which do not belong to this CTA.
    int32_t ih = place.row - (kTaps - 1);
    int32_t row = ih * kStride - params.h.padding + kKernel - kStride;
    const int32_t end = (place.row_end - 1) * kStride - params.h.padding + kKernel;
    Rows rows(params.source, params.source_stride, place, row, min(end, params.h.out),
              place.column * kStride - params.w.padding, params.w.out);
    Pixels pixels(params.pixels, params.pixel_stride, place, place.row, place.row_end, place.column, params.w.in);
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) rows.load(r_rows[slot]);
#pragma unroll
    for (int slot = kTaps - 1; slot < kPixelRows; ++slot) pixels.load(r_pixels[slot]);
#pragma unroll 1
    while (ih < place.row_end) {
      const bool inside = row >= 0 && row + kGroup * kStride <= params.h.out && ih >= place.row &&
                          ih + kGroup + kTaps - 2 < place.row_end;
      if (inside) {
        add_group<true>(rows, pixels, row, ih);
      } else {
        add_group<false>(rows, pixels, row, ih);
      }
    }
  }

  __device__ __forceinline__ bool has_nan() const {
    bool found = false;
#pragma unroll
    for (int tap = 0; tap < kKernel * kKernel; ++tap) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) found = found || isnan(r_acc[tap / kKernel][tap % kKernel][i]);
    }
    return found;
  }

  // Recomputes the sums in their order from the existing terms only.
  __device__ __forceinline__ void add_terms() {
#pragma unroll
    for (int tap = 0; tap < kKernel * kKernel; ++tap) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) r_acc[tap / kKernel][tap % kKernel][i] = 0.0f;
    }
#pragma unroll 1
    for (int32_t ih = place.row; ih < place.row_end; ++ih) {
#pragma unroll 1
      for (int32_t iw = place.column; iw < min(place.column + kPositions, params.w.in); ++iw) {
        typename Traits::Channels input;
        input.load(channels_last_place<const Element>(params.pixels, params.pixel_stride, place, ih, iw));
#pragma unroll
        for (int tap = 0; tap < kKernel * kKernel; ++tap) {
          const int32_t oh = ih * kStride - params.h.padding + tap / kKernel;
          const int32_t ow = iw * kStride - params.w.padding + tap % kKernel;
          if (oh < 0 || oh >= params.h.out || ow < 0 || ow >= params.w.out) continue;
          typename Traits::Channels output;
          output.load(channels_last_place<const Element>(params.source, params.source_stride, place, oh, ow));
          float (&r_sum)[kVector] = r_acc[tap / kKernel][tap % kKernel];
#pragma unroll
          for (int i = 0; i < kVector; ++i) r_sum[i] = element::fused_multiply_add(input[i], output[i], r_sum[i]);
        }
      }
    }
  }
};

// Adds the accumulators of a CTA's threads, by ascending columns, and stores the slab.
template <typename Traits>
__device__ __forceinline__ void store_slab(const ChannelsLastParams& params, const ChannelsLastPlace& place,
                                           const ChannelsLastAccumulators<Traits>& r_acc) {
  constexpr int kKernel = Traits::kKernel, kTaps = kKernel * kKernel, kVector = Traits::kVector;
  extern __shared__ float4 s_threads[];  // [column][tap][channel]
  auto* s_sums = reinterpret_cast<float*>(s_threads);
  const int32_t channels = params.lanes * kVector, column_elems = kTaps * channels;
  if (const int32_t number = static_cast<int32_t>(threadIdx.x) / params.lanes; number < params.columns) {
    float* s_mine = s_sums + number * column_elems + place.lane * kVector;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) s_mine[tap * channels + i] = r_acc[tap / kKernel][tap % kKernel][i];
    }
  }
  __syncthreads();  // the accumulators of all threads are visible
  const int32_t column_block = static_cast<int32_t>(blockIdx.x) % params.column_blocks;
  const int32_t chunk = (place.row - params.positions_h.first) / params.rows;
  const int64_t slab = (int64_t{place.image} * params.chunks + chunk) * params.column_blocks + column_block;
  const int32_t first_channel = place.channel_block * channels;
  float* g_slab = params.slabs + (slab * params.channels + first_channel) * kTaps;
  for (int32_t index = static_cast<int32_t>(threadIdx.x); index < column_elems; index += kChannelsLastThreads) {
    const int32_t tap = index / channels, channel = index - tap * channels;
    if (first_channel + channel >= params.channels) continue;
    float sum = s_sums[index];
    for (int32_t column = 1; column < params.columns; ++column) sum += s_sums[column * column_elems + index];
    g_slab[channel * kTaps + tap] = sum;
  }
}

template <typename Traits, bool kWhole>
__device__ __forceinline__ void add_sums(const ChannelsLastParams& params, const ChannelsLastPlace& place,
                                         ChannelsLastAccumulators<Traits>& r_acc) {
  ChannelsLastGradWeight<Traits, kWhole> gradient{params, place, r_acc};  // unloaded rows are zeros
  gradient.add_all();
  if (gradient.has_nan()) gradient.add_terms();
}

template <typename Traits>
__device__ __forceinline__ void channels_last_grad_weight(const ChannelsLastParams& params) {
  const ChannelsLastPlace place(params, Traits::kPositions);
  const int32_t first_column = place.column * Traits::kStride - params.w.padding;
  const bool whole = place.exists && first_column >= 0 && place.column + Traits::kPositions <= params.w.in &&
                     first_column + (Traits::kPositions - 1) * Traits::kStride + Traits::kKernel <= params.w.out;
  ChannelsLastAccumulators<Traits> r_acc = {};
  // Single channels are rare, so they share one variant.
  if (Traits::kVector > 1 && __all_sync(0xffffffffu, whole) != 0) {
    add_sums<Traits, true>(params, place, r_acc);
  } else if (place.exists) {
    add_sums<Traits, false>(params, place, r_acc);
  }
  store_slab<Traits>(params, place, r_acc);
}

}  // namespace convt::depthwise
