// Runs steps on a result in place. A thread processes 16 contiguous bytes, and computes their coordinates once for all
// steps. Called by epilogue/launch.cpp.
#include <type_traits>

#include "element/arithmetic.cuh"
#include "epilogue/operation.cuh"
#include "epilogue/pass.h"
#include "epilogue/steps.cuh"

namespace convt::epilogue {
namespace {

// Coordinates of an element, outermost first. Index is int32_t if the result has less than 2^31 elements.
template <typename Index>
struct Place {
  Index at[4];
};

template <typename Index, typename Number>
__device__ __forceinline__ Place<Index> place_of(const PassParams<Number>& params, Index element) {
  Place<Index> place;
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    if constexpr (sizeof(Index) == 4) {
      element = params.by_size[axis - 1](element, &place.at[axis]);
    } else {
      const Index quotient = element / params.size[axis - 1];
      place.at[axis] = element - quotient * params.size[axis - 1];
      element = quotient;
    }
  }
  place.at[0] = element;
  return place;
}

template <typename Index, typename Number>
__device__ __forceinline__ void advance(const PassParams<Number>& params, Place<Index>* place) {
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    if (++place->at[axis] < params.size[axis - 1]) return;
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
template <typename Element, int kCount, typename Number, typename Index>
__device__ __forceinline__ void load_operands(const PassParams<Number>& params, int32_t number, Index first,
                                              int32_t left, const Place<Index>& place, Number (&t)[kCount]) {
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
  const auto offset_of = [&](const Place<Index>& at) {
    return at.at[0] * stride[0] + at.at[1] * stride[1] + at.at[2] * stride[2] + at.at[3] * stride[3];
  };
  const int64_t offset = offset_of(place);
  if (left == kCount && place.at[3] <= params.size[2] - kCount) {  // one run of the innermost axis
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
  Place<Index> now = place;
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

template <typename Number, int kCount>
struct Numbers {
  Number of[kCount];
};

// Unary functions in PyTorch's formulas. Not inlined, because a kernel has a copy of the steps for each of its vectors.
template <typename Number, int kCount>
__device__ __noinline__ Numbers<Number, kCount> apply_exactly(Operation function, Number first, Number second,
                                                              Numbers<Number, kCount> values) {
#pragma unroll 1
  for (int i = 0; i < kCount; ++i) {  // rotating the values avoids unrolled copies of the formulas
    const Number value = values.of[0];
#pragma unroll
    for (int k = 1; k < kCount; ++k) values.of[k - 1] = values.of[k];
    values.of[kCount - 1] = exactly(function, value, first, second);
  }
  return values;
}

// Applies a step without an operand.
template <typename Element, int kCount, typename Number>
__device__ __forceinline__ void apply_unary(const Step<Number>& step, bool exact, Number (&values)[kCount]) {
  if (step.operation == Operation::kClamp) {
#pragma unroll
    for (Number& value : values) value = clamp(value, step.first, step.second);
  } else if (exact || sizeof(Number) == 8) {
    Numbers<Number, kCount> r;
    memcpy(r.of, values, sizeof(values));
    r = apply_exactly(step.operation, step.first, step.second, r);
    memcpy(values, r.of, sizeof(values));
  } else {
    Values<kCount> r;
#pragma unroll
    for (int i = 0; i < kCount; ++i) r.of[i] = static_cast<float>(values[i]);
    r = apply<Element>(step.operation, static_cast<float>(step.first), static_cast<float>(step.second), r);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = r.of[i];
  }
}

template <typename Element, int kCount, typename Number, typename Index>
__device__ __forceinline__ void run_steps(const PassParams<Number>& params, Index first, int32_t left,
                                          Number (&values)[kCount]) {
  Place<Index> place{};
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

// 16 bytes of the result. Only the first `left` elements exist.
template <typename Element>
struct Run {
  static constexpr int kCount = kPassBytes / sizeof(Element);
  Element of[kCount];

  __device__ __forceinline__ static bool is_whole(const Element* g, int32_t left) {
    return left >= kCount && reinterpret_cast<uintptr_t>(g) % kPassBytes == 0;
  }
  __device__ __forceinline__ void load(const Element* g, int32_t left) {
    if (is_whole(g, left)) {
      const uint4 words = *reinterpret_cast<const uint4*>(g);
      memcpy(of, &words, sizeof(words));
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) of[i] = i < left ? g[i] : Element{};
    }
  }
  __device__ __forceinline__ void store(Element* g, int32_t left) const {
    if (is_whole(g, left)) {
      uint4 words;
      memcpy(&words, of, sizeof(words));
      *reinterpret_cast<uint4*>(g) = words;
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (i < left) g[i] = of[i];
      }
    }
  }
};

template <typename Element, typename Number, typename Index>
__global__ void __launch_bounds__(kPassThreads, 3) run_pass_kernel(const __grid_constant__ PassParams<Number> params) {
  constexpr int kCount = Run<Element>::kCount;
  constexpr int kStep = kPassThreads * kCount;  // elements between vectors of a thread
  auto* g_result = static_cast<Element*>(params.result);
  const int64_t begin = int64_t{blockIdx.x} * (kPassVectors * kStep) + static_cast<int32_t>(threadIdx.x) * kCount;
  const auto left_from = [&](int64_t first) {
    const int64_t left = params.end - first;
    return static_cast<int32_t>(left < kCount ? left : kCount);
  };
  Run<Element> runs[kPassVectors];
#pragma unroll
  for (int v = 0; v < kPassVectors; ++v) runs[v].load(g_result + begin + v * kStep, left_from(begin + v * kStep));
#pragma unroll
  for (int v = 0; v < kPassVectors; ++v) {
    const int64_t first = begin + v * kStep;
    if (first >= params.end) return;
    Number values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = element::to_accumulator(runs[v].of[i]);
    run_steps<Element>(params, static_cast<Index>(first), left_from(first), values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) runs[v].of[i] = element::to_element<Element>(values[i]);
    runs[v].store(g_result + first, left_from(first));
  }
}

template <typename Element, typename Number>
const void* kernel_of(bool is_large) {
  return is_large ? reinterpret_cast<const void*>(&run_pass_kernel<Element, Number, int64_t>)
                  : reinterpret_cast<const void*>(&run_pass_kernel<Element, Number, int32_t>);
}

}  // namespace

const void* run_pass(DataType dtype, bool is_large) {
  switch (dtype) {
    case DataType::kFloat32: return kernel_of<float, float>(is_large);
    case DataType::kFloat64: return kernel_of<double, double>(is_large);
    case DataType::kFloat16: return kernel_of<__half, float>(is_large);
    case DataType::kBFloat16: return kernel_of<__nv_bfloat16, float>(is_large);
  }
  return nullptr;
}

}  // namespace convt::epilogue
