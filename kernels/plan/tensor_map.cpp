#include "plan/tensor_map.h"

namespace convt {
namespace {

template <typename Number>
std::string list_of(const Number* numbers, int32_t count) {
  std::string text = "[";
  for (int32_t i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}

}  // namespace

std::string describe(DataType dtype, const TensorBox& tensor) {
  return std::string(name_of(dtype)) + " of sizes " + list_of(tensor.sizes, tensor.rank) + " and strides " +
         list_of(tensor.strides, tensor.rank - 1) + ", innermost first, in boxes of " +
         list_of(tensor.box, tensor.rank) + " every " + list_of(tensor.step, tensor.rank) + ", swizzled by " +
         std::to_string(tensor.swizzle_bytes) + " bytes, " +
         std::to_string(reinterpret_cast<uintptr_t>(tensor.data) % 16) + " bytes behind a multiple of 16";
}

}  // namespace convt
