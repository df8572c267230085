// The gradients of depthwise layers: every element of grad_output is read once, into registers, and nothing waits for
// anybody. Both gradients slide over the same rows:
//     gx[ih, iw]  = sum over taps, kh then kw ascending, of  gy[ih * S - padding + kh, ...] * w[kh, kw]
//     slab[kh, kw] = sum over a lane's pixels ascending of   x[ih, iw] * gy[...], then over the lanes of the warp, in
//     halves
// Called by launch/. Must not know: torch, how the plan was chosen.
#pragma once

#include "simt/traits.cuh"
#include "thin/depthwise_params.h"

namespace convt::thin {

template <DataType kDataType, int kKernelValue, int kStrideValue>
struct DepthwiseTraits {
  using Element = typename simt::ElementOf<kDataType>::type;
  static constexpr int kKernel = kKernelValue;
  static constexpr int kStride = kStrideValue;
  static constexpr int kKept = kKernel - kStride;                    // rows, or columns, that neighbours share
  static constexpr int kPixels = kDepthwiseColumns / kStride;        // of a lane and row
  static constexpr int kWindow = kDepthwiseColumns + kKept;          // columns of grad_output that they read
  static_assert(kStride <= kKernel && kKept <= kDepthwiseColumns && kDepthwiseColumns % kStride == 0);
};

// kCount neighbours that one load takes.
template <typename Element, int kCount>
struct alignas(sizeof(Element) * kCount) Neighbours {
  Element element[kCount];
};

// A warp's pixels: rows h .. h_end - 1 of one image and channel, columns from w on, of which a lane has kPixels.
struct Strip {
  int32_t image;
  int32_t channel;
  int32_t chunk;
  int32_t strip;
  int32_t h;
  int32_t h_end;
  int32_t w;     // of the lane
  int32_t lane;

  __device__ __forceinline__ Strip(const DepthwiseParams& params, int32_t lane_pixels) {
    int64_t index = int64_t{blockIdx.x} * (kDepthwiseThreads / 32) + threadIdx.x / 32;
    lane = static_cast<int32_t>(threadIdx.x) % 32;
    strip = static_cast<int32_t>(index % params.strips), index /= params.strips;
    chunk = static_cast<int32_t>(index % params.chunks), index /= params.chunks;
    channel = static_cast<int32_t>(index % params.channels);
    image = static_cast<int32_t>(index / params.channels);
    h = chunk * params.rows;
    h_end = min(h + params.rows, params.h.in);
    w = (strip * 32 + lane) * lane_pixels;
  }
};

// A lane's columns of one row of grad_output, as they come from memory: its own four, and those that the first and the
// last lane of the warp need of the neighbouring strips.
template <typename Traits>
struct RawRow {
  typename Traits::Element own[kDepthwiseColumns];
  typename Traits::Element edge[Traits::kKept > 0 ? Traits::kKept : 1];
};

// kPadding: the columns of a window before a lane's own.
template <typename Traits, int kPadding>
struct RowReader {
  using Element = typename Traits::Element;
  static constexpr int kKept = Traits::kKept;

  const Element* g_columns;  // row 0, the lane's first own column
  int64_t row_stride;
  int64_t column_stride;
  int32_t own_bits;   // own columns that exist
  int32_t edge_bits;  // edge columns that this lane loads
  bool vectors;
  int32_t num_rows;
  int32_t lane;

  __device__ __forceinline__ RowReader(const DepthwiseParams& params, const Strip& strip)
      : row_stride(params.gy_stride[2]), column_stride(params.gy_stride[3]), num_rows(params.h.out), lane(strip.lane) {
    const int32_t column = strip.w * Traits::kStride, columns = params.w.out;
    g_columns = static_cast<const Element*>(params.gy) + strip.image * params.gy_stride[0] +
                strip.channel * params.gy_stride[1] + column * column_stride;
    own_bits = edge_bits = 0;
#pragma unroll
    for (int i = 0; i < kDepthwiseColumns; ++i) own_bits |= (column + i < columns) << i;
#pragma unroll
    for (int e = 0; e < kKept; ++e) {
      const int32_t place = column + edge_offset(e);
      const bool mine = lane == (e < kPadding ? 0 : 31);
      edge_bits |= (mine && place >= 0 && place < columns) << e;
    }
    vectors = params.gy_vectors && own_bits == (1 << kDepthwiseColumns) - 1;
  }

  // Column of edge element e, from the lane's first own: before it, then behind its last.
  static __device__ __forceinline__ int32_t edge_offset(int32_t e) {
    return e < kPadding ? e - kPadding : e - kPadding + kDepthwiseColumns;
  }

  __device__ __forceinline__ bool exists(int32_t row) const { return row >= 0 && row < num_rows; }

  __device__ __forceinline__ void load(int32_t row, RawRow<Traits>& raw) const {
    if (!exists(row)) return;
    const Element* g_row = g_columns + row * row_stride;
    if (vectors) {
      const auto vector = *reinterpret_cast<const Neighbours<Element, kDepthwiseColumns>*>(g_row);
#pragma unroll
      for (int i = 0; i < kDepthwiseColumns; ++i) raw.own[i] = vector.element[i];
    } else {
#pragma unroll
      for (int i = 0; i < kDepthwiseColumns; ++i) {
        if (own_bits >> i & 1) raw.own[i] = g_row[i * column_stride];
      }
    }
#pragma unroll
    for (int e = 0; e < kKept; ++e) {
      if (edge_bits >> e & 1) raw.edge[e] = g_row[edge_offset(e) * column_stride];
    }
  }

  // The window: kPadding columns of the lane before, the own ones, the rest of the lane behind.
  __device__ __forceinline__ void finish(const RawRow<Traits>& raw, float (&r_window)[Traits::kWindow]) const {
    float r_own[kDepthwiseColumns];
#pragma unroll
    for (int i = 0; i < kDepthwiseColumns; ++i) r_window[kPadding + i] = r_own[i] = simt::to_accumulator(raw.own[i]);
#pragma unroll
    for (int e = 0; e < kPadding; ++e) {
      const float other = __shfl_up_sync(0xffffffffu, r_own[kDepthwiseColumns - kPadding + e], 1);
      r_window[e] = lane == 0 ? simt::to_accumulator(raw.edge[e]) : other;
    }
#pragma unroll
    for (int e = kPadding; e < kKept; ++e) {
      const float other = __shfl_down_sync(0xffffffffu, r_own[e - kPadding], 1);
      r_window[kDepthwiseColumns + e] = lane == 31 ? simt::to_accumulator(raw.edge[e]) : other;
    }
  }
};

// Bit i: window column i exists for pixel p, and the pixel itself does.
template <typename Traits, int kPadding>
__device__ __forceinline__ uint32_t window_bits(const DepthwiseParams& params, const Strip& strip, int32_t pixel) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < Traits::kWindow; ++i) {
    const int32_t column = strip.w * Traits::kStride - kPadding + i;
    bits |= static_cast<uint32_t>(column >= 0 && column < params.w.out) << i;
  }
  return strip.w + pixel < params.w.in ? bits : 0;
}

// Calls use(ih, windows, rows_exist) for every row of the strip: the windows of the kKernel rows that its taps read,
// and which of these rows exist, one bit each. The next row's loads are in flight meanwhile.
template <typename Traits, int kPadding, typename Use>
__device__ __forceinline__ void slide(const DepthwiseParams& params, const Strip& strip, Use use) {
  constexpr int kKernel = Traits::kKernel, kStride = Traits::kStride, kKept = Traits::kKept;
  const RowReader<Traits, kPadding> reader(params, strip);
  float r_windows[kKernel][Traits::kWindow];
  RawRow<Traits> r_next[kStride] = {};
  int32_t row = strip.h * kStride - params.h.padding;  // of tap 0
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    RawRow<Traits> raw{};
    reader.load(row + k, raw);
    reader.finish(raw, r_windows[k]);
  }
#pragma unroll
  for (int k = 0; k < kStride; ++k) reader.load(row + kKept + k, r_next[k]);
#pragma unroll 1
  for (int32_t ih = strip.h; ih < strip.h_end; ++ih, row += kStride) {
#pragma unroll
    for (int k = 0; k < kStride; ++k) reader.finish(r_next[k], r_windows[kKept + k]);
    if (ih + 1 < strip.h_end) {
#pragma unroll
      for (int k = 0; k < kStride; ++k) reader.load(row + kKernel + k, r_next[k]);
    }
    uint32_t rows_exist = 0;
#pragma unroll
    for (int k = 0; k < kKernel; ++k) rows_exist |= static_cast<uint32_t>(reader.exists(row + k)) << k;
    use(ih, r_windows, rows_exist);
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
#pragma unroll
      for (int i = 0; i < Traits::kWindow; ++i) r_windows[k][i] = r_windows[k + kStride][i];
    }
  }
}

// One pixel's taps: calls use(kh, kw, column of grad_output) for those that exist, ascending. kWhole: all rows exist,
// and all columns that are some lane's own.
template <typename Traits, int kPadding, bool kWhole, typename Use>
__device__ __forceinline__ void each_tap(const float (&r_windows)[Traits::kKernel][Traits::kWindow], int32_t pixel,
                                         uint32_t columns_exist, uint32_t rows_exist, Use use) {
#pragma unroll
  for (int k_h = 0; k_h < Traits::kKernel; ++k_h) {
    if (!kWhole && (rows_exist >> k_h & 1) == 0) continue;
#pragma unroll
    for (int k_w = 0; k_w < Traits::kKernel; ++k_w) {
      const int i = pixel * Traits::kStride + k_w;
      const bool own = i >= kPadding && i < kPadding + kDepthwiseColumns;
      if ((kWhole && own) || (columns_exist >> i & 1) != 0) use(k_h, k_w, r_windows[k_h][i]);
    }
  }
}

// Which columns exist for each pixel of a lane, and whether all own columns of the warp and all of its pixels do.
template <typename Traits, int kPadding>
struct Existence {
  uint32_t columns[Traits::kPixels];
  bool whole;

  __device__ __forceinline__ Existence(const DepthwiseParams& params, const Strip& strip) {
#pragma unroll
    for (int p = 0; p < Traits::kPixels; ++p) columns[p] = window_bits<Traits, kPadding>(params, strip, p);
    const bool lane_whole =
        strip.w * Traits::kStride + kDepthwiseColumns <= params.w.out && strip.w + Traits::kPixels <= params.w.in;
    whole = __all_sync(0xffffffffu, lane_whole) != 0;
  }

  // Calls use(pixel, each) for every pixel; each(use_tap) is each_tap().
  template <typename Use>
  __device__ __forceinline__ void each_pixel(const float (&r_windows)[Traits::kKernel][Traits::kWindow],
                                             uint32_t rows_exist, Use use) const {
    constexpr uint32_t kAllRows = (1u << Traits::kKernel) - 1;
    if (whole && rows_exist == kAllRows) {
#pragma unroll
      for (int p = 0; p < Traits::kPixels; ++p) {
        use(p, [&](auto use_tap) { each_tap<Traits, kPadding, true>(r_windows, p, columns[p], rows_exist, use_tap); });
      }
    } else {
#pragma unroll
      for (int p = 0; p < Traits::kPixels; ++p) {
        use(p, [&](auto use_tap) { each_tap<Traits, kPadding, false>(r_windows, p, columns[p], rows_exist, use_tap); });
      }
    }
  }
};

template <typename Traits, int kPadding>
__device__ __forceinline__ void depthwise_grad_input(const DepthwiseParams& params, const Strip& strip) {
  using Element = typename Traits::Element;
  constexpr int kKernel = Traits::kKernel, kPixels = Traits::kPixels;
  float r_weight[kKernel][kKernel];
  const auto* g_weight = static_cast<const Element*>(params.weight) + strip.channel * params.weight_stride[0];
#pragma unroll
  for (int k_h = 0; k_h < kKernel; ++k_h) {
#pragma unroll
    for (int k_w = 0; k_w < kKernel; ++k_w) {
      r_weight[k_h][k_w] =
          simt::to_accumulator(g_weight[k_h * params.weight_stride[2] + k_w * params.weight_stride[3]]);
    }
  }
  const Existence<Traits, kPadding> exist(params, strip);
  auto* g_pixels = static_cast<Element*>(params.gx) + strip.image * params.x_stride[0] +
                   strip.channel * params.x_stride[1] + strip.w * params.x_stride[3];
  slide<Traits, kPadding>(params, strip, [&](int32_t ih, const auto& r_windows, uint32_t rows_exist) {
    Neighbours<Element, kPixels> result;
    exist.each_pixel(r_windows, rows_exist, [&](int p, auto each) {
      float sum = 0;
      each([&](int k_h, int k_w, float column) { sum = simt::fused_multiply_add(column, r_weight[k_h][k_w], sum); });
      result.element[p] = simt::to_element<Element>(sum);
    });
    Element* g_row = g_pixels + ih * params.x_stride[2];
    if (params.x_vectors && strip.w + kPixels <= params.w.in) {
      *reinterpret_cast<Neighbours<Element, kPixels>*>(g_row) = result;
    } else {
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        if (strip.w + p < params.w.in) g_row[p * params.x_stride[3]] = result.element[p];
      }
    }
  });
}

template <typename Traits, int kPadding>
__device__ __forceinline__ void depthwise_grad_weight(const DepthwiseParams& params, const Strip& strip) {
  using Element = typename Traits::Element;
  constexpr int kKernel = Traits::kKernel, kPixels = Traits::kPixels;
  float r_sums[kKernel][kKernel] = {};
  const Existence<Traits, kPadding> exist(params, strip);
  const auto* g_pixels = static_cast<const Element*>(params.x) + strip.image * params.x_stride[0] +
                         strip.channel * params.x_stride[1] + strip.w * params.x_stride[3];
  auto load_pixels = [&](int32_t ih) {
    Neighbours<Element, kPixels> pixels{};
    const Element* g_row = g_pixels + ih * params.x_stride[2];
    if (params.x_vectors && strip.w + kPixels <= params.w.in)
      return *reinterpret_cast<const Neighbours<Element, kPixels>*>(g_row);
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      if (strip.w + p < params.w.in) pixels.element[p] = g_row[p * params.x_stride[3]];
    }
    return pixels;
  };
  Neighbours<Element, kPixels> r_next = load_pixels(strip.h);
  slide<Traits, kPadding>(params, strip, [&](int32_t ih, const auto& r_windows, uint32_t rows_exist) {
    const Neighbours<Element, kPixels> r_pixels = r_next;
    if (ih + 1 < strip.h_end) r_next = load_pixels(ih + 1);
    exist.each_pixel(r_windows, rows_exist, [&](int p, auto each) {
      const float pixel = simt::to_accumulator(r_pixels.element[p]);
      each([&](int k_h, int k_w, float column) {
        r_sums[k_h][k_w] = simt::fused_multiply_add(pixel, column, r_sums[k_h][k_w]);
      });
    });
  });
  const int64_t slab = (int64_t{strip.image} * params.chunks + strip.chunk) * params.strips + strip.strip;
  float* g_slab = params.slabs + (slab * params.channels + strip.channel) * kKernel * kKernel;
#pragma unroll
  for (int k_h = 0; k_h < kKernel; ++k_h) {
#pragma unroll
    for (int k_w = 0; k_w < kKernel; ++k_w) {
      float sum = r_sums[k_h][k_w];
#pragma unroll
      for (int half = 16; half > 0; half /= 2) sum = simt::add(sum, __shfl_down_sync(0xffffffffu, sum, half));
      if (strip.lane == 0) g_slab[k_h * kKernel + k_w] = sum;
    }
  }
}

// The planner admits paddings up to kKept alone: a window begins kPadding columns before a lane's own.
template <typename Traits, bool kOfInput>
__global__ void __launch_bounds__(kDepthwiseThreads, kOfInput ? 5 : 4)
    depthwise_kernel(const __grid_constant__ DepthwiseParams params) {
  const Strip strip(params, Traits::kPixels);
  if (int64_t{blockIdx.x} * (kDepthwiseThreads / 32) + threadIdx.x / 32 >= params.num_warps) return;
  auto run = [&](auto padding) {
    if constexpr (padding() <= Traits::kKept) {
      if constexpr (kOfInput) {
        depthwise_grad_input<Traits, padding()>(params, strip);
      } else {
        depthwise_grad_weight<Traits, padding()>(params, strip);
      }
    }
  };
  switch (params.w.padding) {
    case 0: return run(std::integral_constant<int, 0>{});
    case 1: return run(std::integral_constant<int, 1>{});
    default: return run(std::integral_constant<int, 2>{});
  }
}

}  // namespace convt::thin
