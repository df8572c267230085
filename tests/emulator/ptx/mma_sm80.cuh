// Emulates kernels/ptx/mma_sm80.cuh. TF32 operands are truncated as on the hardware, so that a missing rounding shows
// up in the error.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "emulator/device.h"

#define CONVT_HAS_MMA 1

namespace convt::ptx {

// Rounds to the nearest TF32 number, ties away from zero.
inline uint32_t nearest_tf32(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;  // NaN and Inf
  return (bits + 0x1000u) & 0xffffe000u;
}

// Element k of an operand's word: a float, or one of two halves.
inline float tf32_of(uint32_t word, int) { return __uint_as_float(word & 0xffffe000u); }
inline float f16_of(uint32_t word, int k) {
  __half_raw raw;
  raw.x = static_cast<uint16_t>(word >> 16 * k);
  return __half2float(__half(raw));
}
inline float bf16_of(uint32_t word, int k) { return __uint_as_float((word >> 16 * k & 0xffffu) << 16); }

template <typename Element>
void multiply_warp(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int of_word, Element element) {
  struct Lane {
    float* d;
    const uint32_t* a;
    const uint32_t* b;
  } own{d, a, b};
  emulator::meet_warp(&own, [=](void* const* lanes) {
    const auto lane = [lanes](int row, int t) { return static_cast<Lane*>(lanes[4 * row + t]); };
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        float& sum = lane(row % 8, column / 2)->d[row / 8 * 2 + column % 2];
        for (int word = 0; word < 8; ++word) {
          const uint32_t of_a = lane(row % 8, word % 4)->a[word / 4 * 2 + row / 8];
          const uint32_t of_b = lane(column, word % 4)->b[word / 4];
          for (int k = 0; k < of_word; ++k) sum += element(of_a, k) * element(of_b, k);
        }
      }
    }
  });
}

inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_warp(d, a, b, 1, tf32_of);
}
inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_warp(d, a, b, 2, f16_of);
}
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_warp(d, a, b, 2, bf16_of);
}

}  // namespace convt::ptx
