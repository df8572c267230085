// Runs steps on a result in place. A thread processes 16 contiguous bytes, and computes their coordinates once for all
// steps. Called by epilogue/launch.cpp.
#include <type_traits>

#include "element/arithmetic.cuh"
#include "epilogue/operation.cuh"
#include "epilogue/pass.h"
#include "epilogue/steps.cuh"

namespace convt::epilogue {
namespace {

// Coordinates of an element, outermost first.
struct Place {
  int64_t at[4];
};

template <typename Number>
__device__ __forceinline__ Place place_of(const PassParams<Number>& params, int64_t element) {
  Place place{};
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    if (axis > params.first_axis) {
      const FastDivmod& by_size = params.by_size[axis - 1];
      int64_t quotient;
      if (params.end <= INT32_MAX) {
        int32_t rest;
        quotient = by_size(static_cast<int32_t>(element), &rest);
        place.at[axis] = rest;
      } else {
        quotient = element / by_size.value;
        place.at[axis] = element - quotient * by_size.value;
      }
      element = quotient;
    } else if (axis == params.first_axis) {
      place.at[axis] = element;
      element = 0;
    }
  }
  place.at[0] += element;
  return place;
}

template <typename Number>
__device__ __forceinline__ void advance(const PassParams<Number>& params, Place* place) {
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    ++place->at[axis];
    if (axis <= params.first_axis || place->at[axis] < params.by_size[axis - 1].value) return;
    place->at[axis] = 0;
  }
  ++place->at[0];
}

template <typename Element, int kCount, typename Number>
__device__ __forceinline__ void load_whole(const Element* g, Number (&t)[kCount]) {
  Element elements[kCount];
  const uint4 words = *reinterpret_cast<const uint4*>(g);
  memcpy(elements, &words, sizeof(words));
#pragma unroll
  for (int i = 0; i < kCount; ++i) t[i] = element::to_accumulator(elements[i]);
}

// Operands of a step with a tensor.
template <typename Element, int kCount, typename Number>
__device__ __forceinline__ void load_operands(const PassParams<Number>& params, int32_t number, int64_t first,
                                              int32_t left, const Place& place, Number (&t)[kCount]) {
  const Step<Number>& step = params.steps[number];
  const auto* g = static_cast<const Element*>(step.tensor);
  const auto is_aligned = [](const Element* one) { return reinterpret_cast<uintptr_t>(one) % kPassBytes == 0; };
  if (step.operand == Operand::kResult) {
    if (left == kCount && is_aligned(g + first)) return load_whole<Element, kCount>(g + first, t);
#pragma unroll
    for (int i = 0; i < kCount; ++i) t[i] = i < left ? element::to_accumulator(g[first + i]) : Number(0);
    return;
  }
  const int64_t (&stride)[4] = params.stride[number];
  const auto offset_of = [&](const Place& at) {
    return at.at[0] * stride[0] + at.at[1] * stride[1] + at.at[2] * stride[2] + at.at[3] * stride[3];
  };
  const int64_t offset = offset_of(place), to_end = params.first_axis == 3 ? params.end : params.by_size[2].value;
  if (left == kCount && place.at[3] + kCount <= to_end) {  // one run of the innermost axis
    if (stride[3] == 0) {
      const Number same = element::to_accumulator(g[offset]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) t[i] = same;
    } else if (stride[3] == 1 && is_aligned(g + offset)) {
      load_whole<Element, kCount>(g + offset, t);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) t[i] = element::to_accumulator(g[offset + i * stride[3]]);
    }
    return;
  }
  Place now = place;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    t[i] = i < left ? element::to_accumulator(g[offset_of(now)]) : Number(0);
    advance(params, &now);
  }
}

// Applies a step with an operand. The operation is a constant in each branch, so that one branch serves all values.
template <int kCount, typename Number>
__device__ __forceinline__ void apply_with(Operation operation, const Number (&t)[kCount], Number (&values)[kCount]) {
  const auto each = [&](auto of) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = with_operand(decltype(of)::value, values[i], t[i]);
  };
  switch (operation) {
    case Operation::kAdd: return each(std::integral_constant<Operation, Operation::kAdd>());
    case Operation::kSubtract: return each(std::integral_constant<Operation, Operation::kSubtract>());
    case Operation::kMultiply: return each(std::integral_constant<Operation, Operation::kMultiply>());
    case Operation::kDivide: return each(std::integral_constant<Operation, Operation::kDivide>());
    default: return each(std::integral_constant<Operation, Operation::kLeakyRelu>());
  }
}

// Applies a step without an operand.
template <typename Element, int kCount, typename Number>
__device__ __forceinline__ void apply_unary(const Step<Number>& step, bool exact, Number (&values)[kCount]) {
  if (step.operation == Operation::kClamp) {
#pragma unroll
    for (Number& value : values) value = clamp(value, step.first, step.second);
  } else if (exact || sizeof(Number) == 8) {
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {  // rotating the values avoids unrolled copies of the formulas
      Number value = values[0];
#pragma unroll
      for (int k = 1; k < kCount; ++k) values[k - 1] = values[k];
      values[kCount - 1] = exactly(step.operation, value, step.first, step.second);
    }
  } else {
    Values<kCount> r;
#pragma unroll
    for (int i = 0; i < kCount; ++i) r.of[i] = static_cast<float>(values[i]);
    r = apply<Element>(step.operation, static_cast<float>(step.first), static_cast<float>(step.second), r);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = r.of[i];
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
      if (step.operand == Operand::kNumber) {
#pragma unroll
        for (Number& one : t) one = step.first;
      } else {
        load_operands<Element>(params, number, first, left, place, t);
      }
      apply_with(step.operation, t, values);
    } else {
      apply_unary<Element>(step, params.exact, values);
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
  for (int64_t first = (int64_t{blockIdx.x} * kPassThreads + threadIdx.x) * kCount; first < params.end; first += step) {
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
