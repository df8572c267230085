// Runs steps on a result in place. A thread processes 16 contiguous bytes, and computes their coordinates once for all
// steps. Called by epilogue/launch.cpp.
#include "element/arithmetic.cuh"
#include "epilogue/operation.cuh"
#include "epilogue/pass.h"

namespace convt::epilogue {
namespace {

// Coordinates of an element, outermost first. 32-bit division is much faster than 64-bit division.
struct Place {
  int64_t at[4];
};

template <typename Number>
__device__ __forceinline__ Place place_of(const PassParams<Number>& params, int64_t element) {
  Place place;
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    const int64_t size = params.size[axis - 1];
    int64_t quotient;
    if ((element | size) >> 32 == 0) {
      quotient = static_cast<uint32_t>(element) / static_cast<uint32_t>(size);
    } else {
      quotient = element / size;
    }
    place.at[axis] = element - quotient * size;
    element = quotient;
  }
  place.at[0] = element;
  return place;
}

template <typename Number>
__device__ __forceinline__ void advance(const PassParams<Number>& params, Place* place) {
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    if (++place->at[axis] < params.size[axis - 1]) return;
    place->at[axis] = 0;
  }
  ++place->at[0];
}

template <typename Element, int kCount, typename Number>
__device__ __forceinline__ void load_operands(const PassParams<Number>& params, int32_t number, int64_t first,
                                              int32_t left, const Place& place, Number (&t)[kCount]) {
  const Step<Number>& step = params.steps[number];
  const auto* g = static_cast<const Element*>(step.tensor);
  if (step.operand == Operand::kNumber) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) t[i] = step.first;
  } else if (step.operand == Operand::kResult) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) t[i] = i < left ? element::to_accumulator(g[first + i]) : Number(0);
  } else {
    const int64_t (&stride)[4] = params.stride[number];
    Place now = place;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t offset =
          now.at[0] * stride[0] + now.at[1] * stride[1] + now.at[2] * stride[2] + now.at[3] * stride[3];
      t[i] = i < left ? element::to_accumulator(g[offset]) : Number(0);
      advance(params, &now);
    }
  }
}

template <typename Element, int kCount, typename Number>
__device__ __forceinline__ void run_steps(const PassParams<Number>& params, int64_t first, int32_t left,
                                          Number (&values)[kCount]) {
  Place place{};
  if (params.finds_places) place = place_of(params, first);
#pragma unroll 1
  for (int32_t number = 0; number < params.num_steps; ++number) {
    const Step<Number>& step = params.steps[number];
    if (has_operand(step.operation)) {
      Number t[kCount];
      load_operands<Element>(params, number, first, left, place, t);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = with_operand(step.operation, values[i], t[i]);
    } else if (params.exact || sizeof(Number) == 8) {
#pragma unroll 1
      for (int i = 0; i < kCount; ++i) {  // rotating the values avoids unrolled copies of the formulas
        Number value = values[0];
#pragma unroll
        for (int k = 1; k < kCount; ++k) values[k - 1] = values[k];
        values[kCount - 1] = exactly(step.operation, value, step.first, step.second);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] = quickly(step.operation, static_cast<float>(values[i]), static_cast<float>(step.first),
                            static_cast<float>(step.second));
      }
    }
    if (params.exact) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] = element::to_accumulator(element::to_element<Element>(values[i]));
      }
    }
  }
}

template <typename Element, typename Number>
__global__ void __launch_bounds__(kPassThreads) run_pass_kernel(const __grid_constant__ PassParams<Number> params) {
  constexpr int kCount = kPassBytes / sizeof(Element);
  auto* g_result = static_cast<Element*>(params.result);
  const int64_t step = int64_t{gridDim.x} * kPassThreads * kCount;
  for (int64_t first = params.begin + (int64_t{blockIdx.x} * kPassThreads + threadIdx.x) * kCount; first < params.end;
       first += step) {
    const auto left = static_cast<int32_t>(params.end - first < kCount ? params.end - first : kCount);
    Element elements[kCount];
    const bool whole = left == kCount && reinterpret_cast<uintptr_t>(g_result + first) % kPassBytes == 0;
    if (whole) {
      const uint4 words = *reinterpret_cast<const uint4*>(g_result + first);
      memcpy(elements, &words, sizeof(words));
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) elements[i] = i < left ? g_result[first + i] : Element{};
    }
    Number values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = element::to_accumulator(elements[i]);
    run_steps<Element>(params, first, left, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) elements[i] = element::to_element<Element>(values[i]);
    if (whole) {
      uint4 words;
      memcpy(&words, elements, sizeof(words));
      *reinterpret_cast<uint4*>(g_result + first) = words;
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (i < left) g_result[first + i] = elements[i];
      }
    }
  }
}

}  // namespace

const void* run_pass(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32: return reinterpret_cast<const void*>(&run_pass_kernel<float, float>);
    case DataType::kFloat64: return reinterpret_cast<const void*>(&run_pass_kernel<double, double>);
    case DataType::kFloat16: return reinterpret_cast<const void*>(&run_pass_kernel<__half, float>);
    case DataType::kBFloat16: return reinterpret_cast<const void*>(&run_pass_kernel<__nv_bfloat16, float>);
  }
  return nullptr;
}

}  // namespace convt::epilogue
