// Emulates kernels/ptx/wgmma_sm90a.cuh. A product reads its fragments from the kernel's registers when it executes.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "emulator/asynchronous.h"
#include "emulator/device.h"
#include "ptx/operand_layout.cuh"

#define CONVT_HAS_WGMMA 1

namespace convt::ptx {

// Rounds to the nearest TF32 number, ties to even.
inline float round_tf32(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;  // NaN and Inf
  return __uint_as_float((bits + 0xfffu + (bits >> 13 & 1)) & 0xffffe000u);
}

inline void wgmma_fence() {}
inline void wgmma_commit() { emulator::end_group_of_products(); }
template <int kPending>
void wgmma_wait() {
  emulator::make_all_products_but(kPending);
}

inline void multiply(emulator::Format format, float* d, int sums, MatrixDescriptor a, MatrixDescriptor b, bool add) {
  emulator::multiply_later({format, 2 * sums, d, nullptr, {a.low, a.high}, {b.low, b.high}, add, false});
}
inline void multiply(emulator::Format format, float* d, int sums, const uint32_t (&a)[4], MatrixDescriptor b,
                     bool add) {
  emulator::multiply_later({format, 2 * sums, d, a, {}, {b.low, b.high}, add, false});
}

template <int kSums, typename First>
void wgmma_tf32(float (&d)[kSums], const First& a, MatrixDescriptor b, bool add) {
  multiply(emulator::Format::kTf32, d, kSums, a, b, add);
}

template <typename Element, size_t kSums, typename First>
void wgmma(float (&d)[kSums], const First& a, const MatrixDescriptor& b, bool add) {
  constexpr emulator::Format kFormat = std::is_same_v<Element, float>           ? emulator::Format::kTf32
                                       : std::is_same_v<Element, __nv_bfloat16> ? emulator::Format::kBFloat16
                                                                                : emulator::Format::kFloat16;
  multiply(kFormat, d, static_cast<int>(kSums), a, b, add);
}

template <typename Element, size_t kSums>
void wgmma_transposed(float (&d)[kSums], const MatrixDescriptor& a, const MatrixDescriptor& b, bool add) {
  constexpr emulator::Format kFormat =
      std::is_same_v<Element, __nv_bfloat16> ? emulator::Format::kBFloat16 : emulator::Format::kFloat16;
  emulator::multiply_later(
      {kFormat, 2 * static_cast<int>(kSums), d, nullptr, {a.low, a.high}, {b.low, b.high}, add, true});
}

inline void write_fragment(uint32_t& fragment, uint32_t word) { fragment = word; }
inline void write_fragment_tf32(uint32_t& fragment, uint32_t word) {
  fragment = __float_as_uint(round_tf32(__uint_as_float(word)));
}
inline void write_fragment_rest(uint32_t& fragment, uint32_t word, uint32_t high) {
  fragment = __float_as_uint(__uint_as_float(word) - __uint_as_float(high));
}
inline void write_fragment_halves(uint32_t& fragment, uint32_t first, uint32_t second, bool upper) {
  fragment = upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
}
inline void write_fragments_split(uint32_t& high, uint32_t& low, uint32_t word, bool) {
  high = word & 0xffffe000u;
  write_fragment_tf32(low, __float_as_uint(__uint_as_float(word) - __uint_as_float(high)));
}
inline void fence_fragment(uint32_t&) {}
inline void fence_accumulator(float&) {}

}  // namespace convt::ptx
