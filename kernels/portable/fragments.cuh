// Loads operand fragments of a warp from shared memory, and issues mma.sync. Must not know: the meaning of rows and
// columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "element/arithmetic.cuh"
#include "portable/layout.h"
#include "ptx/mma_sm80.cuh"
#include "ptx/shared.cuh"

namespace convt::portable {

#ifdef CONVT_HAS_MMA

// Accumulators of a warp's tile: [16 rows][8 columns][per lane].
template <int kRows, int kColumns>
using Accumulators = float[kRows / 16][kColumns / 8][4];

// One step of K, 32 bytes: 16 halves, or 8 float32 as TF32.
template <typename Element>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<Element, __half>) {
    ptx::mma_f16(d, a, b);
  } else if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    ptx::mma_bf16(d, a, b);
  } else {
    ptx::mma_tf32(d, a, b);
  }
}

template <size_t kCount>
__device__ __forceinline__ void round_to_tf32(uint32_t (&words)[kCount]) {
#pragma unroll
  for (uint32_t& word : words) word = ptx::nearest_tf32(__uint_as_float(word));
}

// All rows of A times all columns of B. Each fragment of B covers two blocks of 8 columns.
template <typename Element, int kRows, int kColumns>
__device__ __forceinline__ void multiply_all(Accumulators<kRows, kColumns>& sums, const uint32_t (&a)[kRows / 16][4],
                                             const uint32_t (&b)[kColumns / 16][4]) {
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    const uint32_t column[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
#pragma unroll
    for (int m = 0; m < kRows / 16; ++m) multiply<Element>(sums[m][n], a[m], column);
  }
}

// Tiles with rows of 64 bytes of K. ldmatrix reads one vector of each of eight rows. The swizzle puts them into eight
// different 16-byte banks: a row covers half of the banks, and the order changes every second row.
__device__ __forceinline__ uint32_t place_of_vector(int32_t row, int32_t vector) {
  return static_cast<uint32_t>(16 * (row * kPortableStageVectors + (vector ^ (row >> 1 & 3))));
}

// Byte offsets of a lane's rows of a warp's matrices in a stage, per step of K. Matrices 16 rows further have the same
// offset plus 16 rows.
struct StagePlaces {
  uint32_t a[kPortableStageVectors / 2], b[kPortableStageVectors / 2];
};

__device__ __forceinline__ StagePlaces places_of_warp(int32_t row, int32_t column) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  StagePlaces places;
#pragma unroll
  for (int step = 0; step < kPortableStageVectors / 2; ++step) {
    places.a[step] = place_of_vector(row + lane % 16, 2 * step + lane / 16);
    places.b[step] = place_of_vector(column + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2);
  }
  return places;
}

// Adds the products of a stage with tiles at s_a and s_b.
template <typename Element, int kRows, int kColumns>
__device__ __forceinline__ void multiply_stage(Accumulators<kRows, kColumns>& sums, uint32_t s_a, uint32_t s_b,
                                               const StagePlaces& places, bool rounds_a) {
#pragma unroll
  for (int step = 0; step < kPortableStageVectors / 2; ++step) {
    uint32_t a[kRows / 16][4], b[kColumns / 16][4];
#pragma unroll
    for (int m = 0; m < kRows / 16; ++m) {
      ptx::load_matrices(a[m], s_a + places.a[step] + 16 * m * kPortableRowBytes);
    }
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      ptx::load_matrices(b[n], s_b + places.b[step] + 16 * n * kPortableRowBytes);
    }
    if (sizeof(Element) == 4 && rounds_a) {
#pragma unroll
      for (auto& fragment : a) round_to_tf32(fragment);
    }
    multiply_all<Element, kRows, kColumns>(sums, a, b);
  }
}

#endif

}  // namespace convt::portable
