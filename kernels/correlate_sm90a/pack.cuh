// Rows that begin on 16 bytes: a copy of a tensor in NCHW whose rows do not, with zeros behind each row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "correlate_sm90a/params.h"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::correlate_sm90a {

// A thread has 16 bytes of a packed row.
template <typename Element>
__global__ void __launch_bounds__(kPackRowsThreads) pack_rows(const __grid_constant__ PackRowsParams params) {
#ifdef CONVT_HAS_WGMMA
  using Bits = std::conditional_t<sizeof(Element) == 4, uint32_t, uint16_t>;
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  const int32_t number = static_cast<int32_t>(blockIdx.x) * kPackRowsThreads + static_cast<int32_t>(threadIdx.x);
  if (number >= params.num_vectors) return;
  int32_t vector, row, channel;
  const int32_t image = params.by_channels(params.by_rows(params.by_vectors(number, &vector), &row), &channel);
  const auto* g_row = static_cast<const Bits*>(params.source) + image * params.stride[0] + channel * params.stride[1] +
                      row * params.stride[2];
  alignas(16) Bits elements[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int32_t column = vector * kVector + i;
    elements[i] = column < params.columns ? g_row[column] : Bits{0};
  }
  uint4 words;
  memcpy(&words, elements, sizeof(words));
  static_cast<uint4*>(params.packed)[number] = words;
#endif
}

}  // namespace convt::correlate_sm90a
