// How the copy engine and warpgroup products see operands in shared memory. Numbers alone and no instruction, so that
// the emulator of the tests has this file as it is.
#pragma once

#include <cstdint>

namespace convt::ptx {

// Where vector number `vector` of 16 bytes lies in row `row` of 32, 64 or 128 bytes that a tensor map's swizzle of as
// many bytes has written, and matrix descriptors of that swizzle read.
__device__ __forceinline__ uint32_t tensor_swizzle(int32_t row_bytes, uint32_t row, uint32_t vector) {
  return row_bytes == 128 ? vector ^ (row & 7) : row_bytes == 64 ? vector ^ (row / 2 & 3) : vector ^ (row / 4 & 1);
}

// A shared-memory operand ("Matrix Descriptor Format"): start address, and the distances in bytes of core matrices
// (8 rows of 16 bytes, 128 contiguous bytes) that are neighbours along K and along M or N. The start is the low bits of
// the low word, in units of 16 bytes, and never carries into the rest: moving an operand is one 32-bit addition.
struct MatrixDescriptor {
  uint32_t low, high;

  __device__ __forceinline__ static MatrixDescriptor of(uint32_t shared, uint32_t bytes_along_k,
                                                        uint32_t bytes_along_mn) {
    return {((shared & 0x3ffff) >> 4) | ((bytes_along_k >> 4) << 16), bytes_along_mn >> 4};
  }
  // An operand whose rows are 32, 64 or 128 bytes along K, swizzled as ptx::tensor_swizzle(), in groups of
  // eight that begin on a multiple of their bytes. A step of K is 32 bytes further.
  __device__ __forceinline__ static MatrixDescriptor of_rows(uint32_t shared, int32_t row_bytes) {
    return {((shared & 0x3ffff) >> 4) | 1 << 16, static_cast<uint32_t>(row_bytes) / 2 | swizzle_of(row_bytes)};
  }
  // An operand of such rows whose groups of eight begin in any row of the swizzle's pattern, which is one of addresses,
  // and lie `group_bytes` apart.
  __device__ __forceinline__ static MatrixDescriptor of_groups(uint32_t shared, int32_t row_bytes,
                                                               uint32_t group_bytes) {
    return {((shared & 0x3ffff) >> 4) | 1 << 16, group_bytes >> 4 | swizzle_of(row_bytes)};
  }
  // An operand whose rows of 128, 64 or 32 bytes are halves along M or N, one row of each K: transposed.
  // The distances are those of the next row's worth of halves and of the next eight rows. It may begin in any row of
  // the swizzle's pattern, which is one of addresses.
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
