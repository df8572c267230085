// Tensors as NCHW rows aligned to 16 bytes, with zeros after each row. Tensors with another layout are packed by a
// separate kernel. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "problem/fast_divmod.h"
#include "problem/problem.h"

namespace convt {

// Strides of packed rows in elements, [image, channel, row, column].
inline void packed_rows(DataType dtype, int64_t channels, int32_t rows, int32_t columns, int64_t (&stride)[4]) {
  const int64_t vector = 16 / element_bytes(dtype);
  stride[3] = 1;
  stride[2] = ceil_div(int64_t{columns}, vector) * vector;
  stride[1] = rows * stride[2];
  stride[0] = channels * stride[1];
}

inline constexpr int32_t kPackRowsThreads = 256;

}  // namespace convt

namespace convt::pack {

// Parameters of pack_rows().
struct PackRowsParams {
  const void* source;  // any strides
  void* packed;
  int64_t stride[4];  // strides of the source in elements: image, channel, row, column
  int32_t columns;
  int32_t num_vectors;  // packed vectors of 16 bytes
  FastDivmod by_vectors, by_rows, by_channels;  // divisors: vectors per row, rows per channel, channels per image
};

// The kernel for float32, or for 16-bit elements.
const void* pack_rows(DataType dtype);

}  // namespace convt::pack
