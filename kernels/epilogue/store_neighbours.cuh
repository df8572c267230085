// Stores contiguous results from one thread's registers in as few stores as their alignment permits.
#pragma once

#include <cstdint>

#include "element/operand.cuh"

namespace convt::epilogue {

// Stores 4, 8 or a multiple of 16 bytes of contiguous elements.
template <typename Element, int kCount>
__device__ __forceinline__ void store_vector(Element* g, const Element (&elements)[kCount]) {
  constexpr int kWords = kCount * static_cast<int>(sizeof(Element)) / 4;
  uint32_t words[kWords];
  memcpy(words, elements, sizeof(elements));
  if constexpr (kWords == 1) {
    *reinterpret_cast<uint32_t*>(g) = words[0];
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(g) = uint2{words[0], words[1]};
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      reinterpret_cast<uint4*>(g)[i / 4] = uint4{words[i], words[i + 1], words[i + 2], words[i + 3]};
    }
  }
}

// Stores the first `left` of kCount values, in as few stores as `unit` permits. `step`: elements between values.
template <typename Element, int kCount>
__device__ __forceinline__ void store_neighbours(Element* g, const float (&values)[kCount], int32_t left, int32_t unit,
                                                 int64_t step) {
  constexpr int kVector = kCount * sizeof(Element) > 16 ? 16 / static_cast<int>(sizeof(Element)) : kCount;
  Element elements[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) elements[i] = element::to_element<Element>(values[i]);
  if constexpr (kVector * sizeof(Element) >= 4) {
    if (left >= kCount && unit >= kVector) return store_vector(g, elements);
  }
  if constexpr (kVector * sizeof(Element) >= 8) {
    if (left >= kCount && unit >= kVector / 2) {
      constexpr int kHalf = kVector / 2;
#pragma unroll
      for (int i = 0; i < kCount; i += kHalf) {
        Element part[kHalf];
        memcpy(part, elements + i, sizeof(part));
        store_vector(g + i, part);
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < left) g[i * step] = elements[i];
  }
}

// Stores contiguous results that are not read soon (st.global.cs), so that they leave L2 before data that is read
// again.
template <typename Element, int kCount>
__device__ __forceinline__ void stream_vector(Element* g, const Element (&elements)[kCount]) {
  constexpr int kWords = kCount * static_cast<int>(sizeof(Element)) / 4;
  static_assert(kWords == 2 || kWords % 4 == 0);
  uint32_t words[kWords];
  memcpy(words, elements, sizeof(elements));
  if constexpr (kWords == 2) {
    __stcs(reinterpret_cast<uint2*>(g), uint2{words[0], words[1]});
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      __stcs(reinterpret_cast<uint4*>(g) + i / 4, uint4{words[i], words[i + 1], words[i + 2], words[i + 3]});
    }
  }
}

}  // namespace convt::epilogue
