// The upsample engine's results: registers -> global memory, whole 32-byte sectors.
#pragma once

#include "epilogue/store_neighbours.cuh"
#include "upsample_sm90a/mainloop.cuh"

namespace convt::upsample_sm90a {

#ifdef CONVT_HAS_WGMMA

// g_row: the result's row at the operand's first channel and the thread's first position.
template <typename S>
__device__ __forceinline__ void store_row(const Params& params, const Accumulators& sums, typename S::Element* g_row,
                                          int32_t channels, int32_t columns, const float* s_bias) {
  using Element = typename S::Element;
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32, t = lane % 4;
  constexpr int kTerms = S::kElement == 4 ? 2 : 1;
  const int64_t step = 4 * params.result_stride[1];
#pragma unroll
  for (int part = 0; part < kTerms; ++part) {
    // TF32: two lanes store an octet of the even one's channel, then of the odd one's.
    const bool second = kTerms == 2 && (t & 1) != part;
    const int32_t first = kTerms == 1 ? t : part == 0 ? t & 2 : t | 1;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t column = 8 * h * params.w.stride + (second ? 4 : 0);
      if (column >= columns) continue;
      Element* g_octet = g_row + first * params.result_stride[1] + column;
#pragma unroll
      for (int block = 0; block < kUpsampleChannels / 4; ++block, g_octet += step) {
        const int32_t channel = 4 * block + first;
        if (channel >= channels) continue;
        const float bias = s_bias[channel];
        Element elements[S::kVector];
#pragma unroll
        for (int e = 0; e < S::kVector; ++e) {
          const int at = 4 * (2 * block + e / 2 % 2) + 2 * h + e % 2;
          const float sum = second ? sums[1][at] : sums[e / 4][at];
          elements[e] = element::to_element<Element>(element::add(sum, bias));
        }
        epilogue::stream_vector(g_octet, elements);
      }
    }
  }
}

#endif

}  // namespace convt::upsample_sm90a
