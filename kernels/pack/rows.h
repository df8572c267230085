// Tensors as rows of NCHW that begin on 16 bytes, with zeros behind each row, packed by a kernel of their own where
// they lie in another way. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/problem.h"

namespace convt {

// Strides in elements of packed rows, [image, channel, row, column].
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

// What pack_rows() is launched with.
struct PackRowsParams {
  const void* source;  // any strides
  void* packed;
  int64_t stride[4];  // of the source, in elements: image, channel, row, column
  int32_t columns;
  int32_t num_vectors;  // of 16 bytes, packed
  FastDivmod by_vectors, by_rows, by_channels;  // of a packed row, of a channel, of an image
};

// Of float32 or of 16-bit elements.
const void* pack_rows(DataType dtype);

}  // namespace convt::pack
