// Layouts of operands in shared memory for TMA and wgmma. Contains no instructions, so that the tests' emulator can
// include it unchanged.
#pragma once

#include <cstdint>

namespace convt::ptx {

// Index of 16-byte vector `vector` in row `row` of 32, 64 or 128 bytes, under the swizzle of the same size that TMA
// writes and matrix descriptors read.
__device__ __forceinline__ uint32_t tensor_swizzle(int32_t row_bytes, uint32_t row, uint32_t vector) {
  return row_bytes == 128 ? vector ^ (row & 7) : row_bytes == 64 ? vector ^ (row / 2 & 3) : vector ^ (row / 4 & 1);
}

// A shared-memory operand ("Matrix Descriptor Format"): start address, and the byte distances between core matrices (8
// rows of 16 bytes, 128 contiguous bytes) that are adjacent along K and along M or N. The start is in the low bits of
// the low word, in units of 16 bytes, and never carries into other bits, so advancing an operand is one 32-bit
// addition.
struct MatrixDescriptor {
  uint32_t low, high;

  __device__ __forceinline__ static MatrixDescriptor of(uint32_t shared, uint32_t bytes_along_k,
                                                        uint32_t bytes_along_mn) {
    return {((shared & 0x3ffff) >> 4) | ((bytes_along_k >> 4) << 16), bytes_along_mn >> 4};
  }
  // An operand with rows of 32, 64 or 128 bytes along K, with ptx::tensor_swizzle(), in groups of eight rows aligned to
  // the group's size. The next step of K is 32 bytes further.
  __device__ __forceinline__ static MatrixDescriptor of_rows(uint32_t shared, int32_t row_bytes) {
    return {((shared & 0x3ffff) >> 4) | 1 << 16, static_cast<uint32_t>(row_bytes) / 2 | swizzle_of(row_bytes)};
  }
  // An operand with such rows in groups of eight, `group_bytes` apart. Groups may start in any row of the swizzle
  // pattern, because the pattern depends on addresses.
  __device__ __forceinline__ static MatrixDescriptor of_groups(uint32_t shared, int32_t row_bytes,
                                                               uint32_t group_bytes) {
    return {((shared & 0x3ffff) >> 4) | 1 << 16, group_bytes >> 4 | swizzle_of(row_bytes)};
  }
  // A transposed operand: rows of 128, 64 or 32 bytes contain halves along M or N, one row per K. The distances are
  // those to the next row's width along M or N, and to the next eight rows. It may start in any row of the swizzle
  // pattern, because the pattern depends on addresses.
  __device__ __forceinline__ static MatrixDescriptor of_transposed_rows(uint32_t shared, int32_t row_bytes,
                                                                        uint32_t bytes_along_mn,
                                                                        uint32_t bytes_along_k) {
    return {((shared & 0x3ffff) >> 4) | ((bytes_along_mn >> 4) << 16), bytes_along_k >> 4 | swizzle_of(row_bytes)};
  }
  __device__ __forceinline__ MatrixDescriptor moved(uint32_t units) const { return {low + units, high}; }
  __device__ __forceinline__ uint64_t bits() const { return uint64_t{high} << 32 | low; }

 private:
  __device__ __forceinline__ static uint32_t swizzle_of(int32_t row_bytes) {
    return (row_bytes == 128 ? 1u : row_bytes == 64 ? 2u : 3u) << 30;
  }
};

}  // namespace convt::ptx
