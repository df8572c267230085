// Kernel that packs tensors as NCHW rows.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "pack/rows.h"
#include "ptx/mma_sm80.cuh"

namespace convt::pack {

// Loads 16 contiguous bytes. Halves may start in the middle of a word; then the last element is the first half of a
// fifth word.
template <typename Bits>
__device__ __forceinline__ uint4 load_neighbours(const Bits* g) {
  const auto address = reinterpret_cast<uintptr_t>(g);
  const auto* g_words = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
  const bool between = sizeof(Bits) == 2 && address % 4 != 0;
  uint32_t words[5];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = g_words[i];
  words[4] = between ? g_words[4] : 0;
  const auto neighbour = [&](int i) { return __byte_perm(words[i], words[i + 1], between ? 0x5432 : 0x3210); };
  return {neighbour(0), neighbour(1), neighbour(2), neighbour(3)};
}

// A thread packs 16 bytes of a row.
template <typename Element>
__global__ void __launch_bounds__(kPackRowsThreads) pack_rows(const __grid_constant__ PackRowsParams params) {
#ifdef CONVT_HAS_MMA
  using Bits = std::conditional_t<sizeof(Element) == 4, uint32_t, uint16_t>;
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  const auto number = static_cast<int32_t>(blockIdx.x * kPackRowsThreads + threadIdx.x);
  if (number >= params.num_vectors) return;
  int32_t vector, row, channel;
  const int32_t image = params.by_channels(params.by_rows(params.by_vectors(number, &vector), &row), &channel);
  const int32_t first = vector * kVector, left = params.columns - first;
  const auto* g_first = static_cast<const Bits*>(params.source) + image * params.stride[0] +
                        channel * params.stride[1] + row * params.stride[2] + first * params.stride[3];
  uint4 packed;
  // The fifth word is within the row if the row has at least one more element.
  if (params.stride[3] == 1 && left > kVector) {
    packed = load_neighbours(g_first);
  } else {
    alignas(16) Bits elements[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) elements[i] = i < left ? g_first[i * params.stride[3]] : Bits{0};
    memcpy(&packed, elements, sizeof(packed));
  }
  static_cast<uint4*>(params.packed)[number] = packed;
#endif
}

}  // namespace convt::pack
