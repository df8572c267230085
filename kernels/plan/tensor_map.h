// Parameters of tensor maps, with which TMA copies boxes of tensors (CUDA driver API, "Tensor Map Object Management"),
// and their limits. For every engine that launches with tensor maps. Must not know: torch, CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "problem/problem.h"

namespace convt {

inline constexpr int64_t kMapStrideLimit = int64_t{1} << 40;  // bytes

// Whether a map supports a dimension of `size` elements of `element` bytes with this stride. The stride of a single
// element is irrelevant: make_tensor_map() replaces it.
inline bool has_map_stride(int64_t size, int64_t stride, int64_t element) {
  return size == 1 || (stride > 0 && stride < kMapStrideLimit / element && stride * element % 16 == 0);
}

// A tensor of `rank` dimensions, innermost first. Innermost elements are contiguous. The other strides, in elements,
// must be multiples of 16 bytes unless their size is 1, and `data` must be aligned to 16 bytes. A copy transfers one
// box and fills elements outside the tensor with zeros.
struct TensorBox {
  const void* data;
  int64_t sizes[5];
  int64_t strides[4];
  int32_t box[5];  // elements
  int32_t rank = 4;
  int32_t step[5] = {1, 1, 1, 1, 1};  // element stride per dimension; 1 for the innermost
  bool rounded = false;  // round float32 to TF32, to nearest, ties to even
  int32_t fetched_bytes = 256;  // L2 promotion: 64, 128 or 256
  int32_t swizzle_bytes = 0;  // 32, 64 or 128, as in ptx::tensor_swizzle(): equals the box's innermost extent; 0: none
};

// For error texts: dtype, sizes, strides, box and alignment.
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
