// Tensor maps, by which the copy engine copies boxes of tensors (CUDA driver API, "Tensor Map Object Management"): what
// one describes, and what it can. For every engine whose launch makes one. Must not know: torch, CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "problem/problem.h"

namespace convt {

inline constexpr int64_t kMapStrideLimit = int64_t{1} << 40;  // bytes

// Whether a map can step along a dimension of `size` elements, `element` bytes each. The stride of a single element
// says nothing: make_tensor_map() gives it another.
inline bool has_map_stride(int64_t size, int64_t stride, int64_t element) {
  return size == 1 || (stride > 0 && stride < kMapStrideLimit / element && stride * element % 16 == 0);
}

// A tensor of four dimensions, or `rank`, innermost dimension first, whose innermost elements are neighbours; strides
// in elements, of the others, are multiples of 16 bytes where there is more than one element, as is `data`. A copy
// takes a box of it, with zeros for what is outside.
struct TensorBox {
  const void* data;
  int64_t sizes[5];
  int64_t strides[4];
  int32_t box[5];  // elements
  int32_t rank = 4;
  int32_t step[5] = {1, 1, 1, 1, 1};  // from one of these to the next; of the innermost 1
  bool rounded = false;  // copies are float32 rounded to TF32, to the nearest, ties to even
  int32_t fetched_bytes = 256;  // what L2 fetches at once from memory: 64, 128 or 256
  int32_t swizzle_bytes = 0;  // 32, 64 or 128, as ptx::tensor_swizzle(): the innermost dimension of a box is as long
};

// For errors: dtype, sizes, strides, the box and where the tensor begins.
inline std::string describe(DataType dtype, const TensorBox& tensor) {
  const auto list_of = [](const auto* numbers, int32_t count) {
    std::string text = "[";
    for (int32_t i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
    return text + "]";
  };
  return std::string(name_of(dtype)) + " of sizes " + list_of(tensor.sizes, tensor.rank) + " and strides " +
         list_of(tensor.strides, tensor.rank - 1) + ", innermost first, in boxes of " +
         list_of(tensor.box, tensor.rank) + " every " + list_of(tensor.step, tensor.rank) + ", swizzled by " +
         std::to_string(tensor.swizzle_bytes) + " bytes, " +
         std::to_string(reinterpret_cast<uintptr_t>(tensor.data) % 16) + " bytes behind a multiple of 16";
}

}  // namespace convt
