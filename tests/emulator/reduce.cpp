// Replaces reduce/launch.cpp: reduces slabs on the host.
#include <math.h>  // isnan() as device code calls it

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "emulator/device.h"
#include "emulator/emulator.h"
#include "reduce/launch.h"
#include "reduce/terms.cuh"

namespace convt {
namespace {

// Recomputes a sum as the slab-reduction kernel does.
float again(DataType dtype, const reduce::WeightTerms& terms, const int32_t (&place)[4]) {
  if (dtype == DataType::kFloat16) return reduce::sum_of_terms<__half>(terms, place);
  if (dtype == DataType::kBFloat16) return reduce::sum_of_terms<__nv_bfloat16>(terms, place);
  return reduce::sum_of_terms<float>(terms, place);
}

}  // namespace

// Accumulates in double.
template <typename Sum, typename Result>
static void add_slabs(DataType dtype, const Sum* slabs, int64_t num_slabs, const int64_t* size, const int64_t* stride,
                      Result* result, const reduce::WeightTerms& terms) {
  const int64_t count = size[0] * size[1] * size[2] * size[3];
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int64_t slab = 0; slab < num_slabs; ++slab) sum += slabs[slab * count + i];
    int64_t rest = i, to = 0;
    int32_t place[4];
    for (int axis = 3; axis >= 0; --axis) {
      place[axis] = static_cast<int32_t>(rest % size[axis]);
      to += place[axis] * stride[axis];
      rest /= size[axis];
    }
    if (std::isnan(sum) && terms.x != nullptr) sum = again(dtype, terms, place);
    if constexpr (std::is_same_v<Result, double>) {
      result[to] = sum;
    } else {
      result[to] = element::to_element<Result>(static_cast<float>(sum));
    }
  }
}

void launch_add_slabs(DataType dtype, const void* slabs, int64_t num_slabs, const int64_t* size, const int64_t* stride,
                      void* result, cudaStream_t, const reduce::WeightTerms& terms) {
  const auto add = [&](const auto* typed_slabs, auto* typed_result) {
    add_slabs(dtype, typed_slabs, num_slabs, size, stride, typed_result, terms);
  };
  const auto* floats = static_cast<const float*>(slabs);
  if (dtype == DataType::kFloat64) {
    add(static_cast<const double*>(slabs), static_cast<double*>(result));
  } else if (dtype == DataType::kFloat32 || emulator::keeps_float_sums) {
    add(floats, static_cast<float*>(result));
  } else if (dtype == DataType::kFloat16) {
    add(floats, static_cast<__half*>(result));
  } else {
    add(floats, static_cast<__nv_bfloat16*>(result));
  }
}

int64_t launch_channel_slabs(const ChannelSum& sum, const void* gy, void* slabs, cudaStream_t, void*) {
  auto* sums = static_cast<float*>(slabs);
  const int64_t num_slabs = num_channel_slabs(sum);
  std::fill_n(sums, num_slabs * sum.size[1], 0.0f);
  const auto add = [&](const auto* elements) {
    for (int64_t n = 0; n < sum.size[0]; ++n) {
      for (int64_t channel = 0; channel < sum.size[1]; ++channel) {
        for (int64_t pixel = 0; pixel < sum.size[2] * sum.size[3]; ++pixel) {
          const int64_t place[4] = {n, channel, pixel / sum.size[3], pixel % sum.size[3]};
          sums[channel] +=
              element::to_accumulator(elements[std::inner_product(place, place + 4, sum.stride, int64_t{0})]);
        }
      }
    }
  };
  if (sum.dtype == DataType::kFloat16) {
    add(static_cast<const __half*>(gy));
  } else if (sum.dtype == DataType::kBFloat16) {
    add(static_cast<const __nv_bfloat16*>(gy));
  } else {
    add(static_cast<const float*>(gy));
  }
  return num_slabs;
}

}  // namespace convt
