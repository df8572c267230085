// In the place of reduce/launch.cpp: sums of slabs on the host.
#include <math.h>  // isnan() as device code calls it

#include "emulator/device.h"
#include "reduce/launch.h"
#include "reduce/terms.cuh"

namespace convt {
namespace {

// As the kernel that adds slabs makes a sum again.
float again(DataType dtype, const reduce::WeightTerms& terms, const int32_t (&place)[4]) {
  if (dtype == DataType::kFloat16) return reduce::sum_of_terms<__half>(terms, place);
  if (dtype == DataType::kBFloat16) return reduce::sum_of_terms<__nv_bfloat16>(terms, place);
  return reduce::sum_of_terms<float>(terms, place);
}

}  // namespace

// Sums in double, and a result in float32 whatever the problem's dtype is.
void launch_add_slabs(DataType dtype, const void* slabs, int64_t num_slabs, const int64_t* size, const int64_t* stride,
                      void* result, cudaStream_t, const reduce::WeightTerms& terms) {
  const int64_t count = size[0] * size[1] * size[2] * size[3];
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int64_t slab = 0; slab < num_slabs; ++slab) sum += static_cast<const float*>(slabs)[slab * count + i];
    int64_t rest = i, to = 0;
    int32_t place[4];
    for (int axis = 3; axis >= 0; --axis) {
      place[axis] = static_cast<int32_t>(rest % size[axis]);
      to += place[axis] * stride[axis];
      rest /= size[axis];
    }
    if (std::isnan(sum) && terms.x != nullptr) sum = again(dtype, terms, place);
    static_cast<float*>(result)[to] = static_cast<float>(sum);
  }
}

}  // namespace convt
