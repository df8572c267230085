// Contiguous elements that one instruction loads or stores, kept as the words from memory. Unpacking 16-bit elements at
// the load would wait for it there instead of at its use. Must not know: the elements' meaning.
#pragma once

#include <cstdint>

#include "element/arithmetic.cuh"
#include "ptx/shared.cuh"

namespace convt::element {

template <typename Element, int kCount>
struct Vector {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(Element));
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes % 16 == 0);
  uint32_t word[kWords];

  // Loads all elements. The address must be a multiple of kBytes or 16.
  __device__ __forceinline__ void load(const Element* g_elements) {
    if constexpr (kBytes >= 16) {
#pragma unroll
      for (int w = 0; w < kWords; w += 4) {
        const uint4 words = reinterpret_cast<const uint4*>(g_elements)[w / 4];
        word[w] = words.x, word[w + 1] = words.y, word[w + 2] = words.z, word[w + 3] = words.w;
      }
    } else if constexpr (kBytes == 8) {
      const uint2 words = *reinterpret_cast<const uint2*>(g_elements);
      word[0] = words.x, word[1] = words.y;
    } else if constexpr (kBytes == 4) {
      word[0] = *reinterpret_cast<const uint32_t*>(g_elements);
    } else {
      word[0] = *reinterpret_cast<const uint16_t*>(g_elements);
    }
  }

  // Loads the first `count` elements, with stride `step`. All loads of halves are issued before the first is packed, so
  // that they overlap.
  __device__ __forceinline__ void load(const Element* g_elements, int64_t step, int32_t count) {
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (i < count) word[i] = *reinterpret_cast<const uint32_t*>(g_elements + i * step);
      }
    } else if (count > 0) {
      uint32_t halves[2 * kWords]{};
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        // Missing elements repeat the first load, so that no load is conditional.
        const uint32_t half = *reinterpret_cast<const uint16_t*>(g_elements + (i < count ? i : 0) * step);
        halves[i] = i < count ? half : 0;
      }
#pragma unroll
      for (int w = 0; w < kWords; ++w) word[w] = halves[2 * w] | halves[2 * w + 1] << 16;
    }
  }

  __device__ __forceinline__ void store(Element* g_elements) const {
    if constexpr (kBytes >= 16) {
#pragma unroll
      for (int w = 0; w < kWords; w += 4) {
        reinterpret_cast<uint4*>(g_elements)[w / 4] = make_uint4(word[w], word[w + 1], word[w + 2], word[w + 3]);
      }
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(g_elements) = make_uint2(word[0], word[1]);
    } else if constexpr (kBytes == 4) {
      *reinterpret_cast<uint32_t*>(g_elements) = word[0];
    } else {
      *reinterpret_cast<uint16_t*>(g_elements) = static_cast<uint16_t>(word[0]);
    }
  }

  __device__ __forceinline__ void store(int i, Element* g_element) const {
    if constexpr (sizeof(Element) == 4) {
      *reinterpret_cast<uint32_t*>(g_element) = word[i];
    } else {
      *reinterpret_cast<uint16_t*>(g_element) = static_cast<uint16_t>(word[i / 2] >> 16 * (i % 2));
    }
  }

  // Element i, converted exactly.
  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (sizeof(Element) == 4) {
      return __uint_as_float(word[i]);
    } else if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
      return __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000u);
    } else {
      return __half2float(__ushort_as_half(static_cast<uint16_t>(word[i / 2] >> 16 * (i % 2))));
    }
  }

  // Rounds all elements once, to nearest even.
  __device__ __forceinline__ void round(const float (&values)[kCount]) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (sizeof(Element) == 4) {
        word[w] = __float_as_uint(values[w]);
      } else {
        const float high = 2 * w + 1 < kCount ? values[2 * w + 1 < kCount ? 2 * w + 1 : 0] : 0.0f;
        if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
          const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * w], high);
          word[w] = reinterpret_cast<const uint32_t&>(pair);
        } else {
          const __half2 pair = __floats2half2_rn(values[2 * w], high);
          word[w] = reinterpret_cast<const uint32_t&>(pair);
        }
      }
    }
  }
};

// Loads kCount contiguous elements from shared memory to registers, 16 bytes at a time if possible.
template <int kCount, int kOffset = 0, typename Accumulator>
__device__ __forceinline__ void read_shared(Accumulator* r_values, uint32_t s_values) {
  constexpr int kPerLoad = sizeof(Accumulator) == 8 || kCount < 4 ? 2 : 4;
  static_assert(kCount % kPerLoad == 0, "whole vectors");
  Accumulator r_vector[kPerLoad];
  ptx::load_shared<kOffset>(r_vector, s_values);
#pragma unroll
  for (int i = 0; i < kPerLoad; ++i) r_values[i] = r_vector[i];
  if constexpr (kCount > kPerLoad) {
    read_shared<kCount - kPerLoad, kOffset + kPerLoad* static_cast<int>(sizeof(Accumulator))>(r_values + kPerLoad,
                                                                                              s_values);
  }
}

}  // namespace convt::element
