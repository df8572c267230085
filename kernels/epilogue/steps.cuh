// Runs an epilogue's program on results in registers. One place for all kernels that multiply on tensor cores: a kernel
// hands over a few runs of neighbours at a time and says where they belong.
//
// The switch over a step's operation is the same for a whole grid, so it costs little for 8 or 16 values at once. It is
// a function that is called: inlined into every place that stores it would be most of a kernel's code. Called by the
// epilogues of the families. Must not know: how a result is stored.
#pragma once

#include <cstdint>
#include <type_traits>

#include "element/arithmetic.cuh"
#include "epilogue/operation.cuh"
#include "epilogue/program.h"

namespace convt::epilogue {

// Where kRuns runs of values belong. The values of a run are neighbours: columns of one channel, or channels of one
// position.
template <int kRuns>
struct Places {
  int32_t channel[kRuns];  // of all groups' channels, the first value's
  int32_t left[kRuns];  // so many of the run's values are results, none where it is not positive
  int64_t offset[kRuns];  // of the first value from the first result, in elements
  int32_t step = 1;  // from a value of a run to the next, in elements
};

template <int kCount>
struct Values {
  float of[kCount];
};

template <int kCount>
__device__ __forceinline__ void run_numbers(Operation operation, float first, float second, Values<kCount>* values) {
  const auto each = [values](auto function) {
#pragma unroll
    for (float& value : values->of) value = function(value);
  };
  switch (operation) {  // once for all of them
    case Operation::kAdd: each([first](float y) { return with_operand(Operation::kAdd, y, first); }); break;
    case Operation::kMultiply: each([first](float y) { return with_operand(Operation::kMultiply, y, first); }); break;
    case Operation::kLeakyRelu: each([first](float y) { return with_operand(Operation::kLeakyRelu, y, first); }); break;
    case Operation::kSilu: each([](float y) { return quickly(Operation::kSilu, y, 0, 0); }); break;
    case Operation::kGelu: each([](float y) { return quickly(Operation::kGelu, y, 0, 0); }); break;
    case Operation::kGeluTanh: each([](float y) { return quickly(Operation::kGeluTanh, y, 0, 0); }); break;
    case Operation::kTanh: each([](float y) { return quickly(Operation::kTanh, y, 0, 0); }); break;
    case Operation::kSigmoid: each([](float y) { return quickly(Operation::kSigmoid, y, 0, 0); }); break;
    case Operation::kHardswish: each([](float y) { return quickly(Operation::kHardswish, y, 0, 0); }); break;
    case Operation::kMish: each([](float y) { return quickly(Operation::kMish, y, 0, 0); }); break;
    case Operation::kSoftplus:
      each([first, second](float y) { return quickly(Operation::kSoftplus, y, first, second); });
      break;
    default: each([first, second](float y) { return clamp(y, first, second); });
  }
}

template <int kCount>
__device__ __forceinline__ void run_operands(Operation operation, const float (&t)[kCount], Values<kCount>* values) {
  const auto each = [&](auto function) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values->of[i] = function(values->of[i], t[i]);
  };
  switch (operation) {
    case Operation::kAdd: each([](float y, float x) { return with_operand(Operation::kAdd, y, x); }); break;
    case Operation::kSubtract: each([](float y, float x) { return with_operand(Operation::kSubtract, y, x); }); break;
    case Operation::kMultiply: each([](float y, float x) { return with_operand(Operation::kMultiply, y, x); }); break;
    case Operation::kDivide: each([](float y, float x) { return __fdividef(y, x); }); break;
    default: each([](float y, float x) { return with_operand(Operation::kLeakyRelu, y, x); });
  }
}

// Operands of the values' channels.
template <typename Element, int kRuns, int kLength, bool kChannels>
__device__ __forceinline__ void load_channels(const Element* g, int32_t step, const Places<kRuns>& places,
                                              float (&t)[kRuns * kLength]) {
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      float& to = t[run * kLength + i];
      if (i > 0 && !kChannels) {
        to = t[run * kLength];
      } else {
        const int64_t channel = places.channel[run] + i;
        to = i < places.left[run] ? element::to_accumulator(g[channel * step]) : 0.0f;
      }
    }
  }
}

// Operands that lie as the results do.
template <typename Element, int kRuns, int kLength>
__device__ __forceinline__ void load_results(const Element* g, bool by_vectors, const Places<kRuns>& places,
                                             float (&t)[kRuns * kLength]) {
  constexpr int kBytes = kLength * static_cast<int>(sizeof(Element));
  using Word = std::conditional_t<kBytes % 16 == 0, uint4, std::conditional_t<kBytes % 8 == 0, uint2, uint32_t>>;
  constexpr int kWords = kBytes / static_cast<int>(sizeof(Word));
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    const Element* g_run = g + places.offset[run];
    Element elements[kLength];
    memset(elements, 0, sizeof(elements));
    if (by_vectors && kWords > 0 && places.left[run] >= kLength) {
      Word words[kWords > 0 ? kWords : 1];
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = __ldcs(reinterpret_cast<const Word*>(g_run) + i);
      memcpy(elements, words, kBytes);
    } else {
#pragma unroll
      for (int i = 0; i < kLength; ++i) {
        if (i < places.left[run]) elements[i] = g_run[i * places.step];
      }
    }
#pragma unroll
    for (int i = 0; i < kLength; ++i) t[run * kLength + i] = element::to_accumulator(elements[i]);
  }
}

// A program on kRuns runs of kLength values each. kChannels: the neighbours of a run are channels. `by_vectors`: runs
// are neighbours in memory, and begin on as many bytes as they have, up to 16, in the result and in operands of its
// shape.
template <typename Element, int kRuns, int kLength, bool kChannels>
__device__ __noinline__ Values<kRuns * kLength> run_program(const Program& program, bool by_vectors,
                                                            Places<kRuns> places, Values<kRuns * kLength> values) {
  const Step<float>* step = program.steps;
  Step<float> next = *step;
#pragma unroll 1
  for (int32_t left = program.num_steps; left > 0; --left) {
    const Step<float> now = next;
    ++step;
    if (left > 1) next = *step;  // is there when its turn comes
    if (now.operand == Operand::kNumber) {
      run_numbers(now.operation, now.first, now.second, &values);
      continue;
    }
    const auto* g = static_cast<const Element*>(now.tensor);
    float t[kRuns * kLength];
    if (now.operand == Operand::kChannel) {
      load_channels<Element, kRuns, kLength, kChannels>(g, now.channel_step, places, t);
    } else {
      load_results<Element, kRuns, kLength>(g, by_vectors, places, t);
    }
    run_operands(now.operation, t, &values);
  }
  return values;
}

// The same on an array of them, first run first.
template <typename Element, int kRuns, int kLength, bool kChannels>
__device__ __forceinline__ void run_steps(const Program& program, const Places<kRuns>& places, bool by_vectors,
                                          float (&values)[kRuns * kLength]) {
  Values<kRuns * kLength> r;
  memcpy(r.of, values, sizeof(values));
  r = run_program<Element, kRuns, kLength, kChannels>(program, by_vectors, places, r);
  memcpy(values, r.of, sizeof(values));
}

// The same on results that have been rounded to elements and are about to be stored, neighbouring columns of a channel.
template <typename Element, int kRuns, int kLength>
__device__ __forceinline__ void run_elements(const Program& program, const Places<kRuns>& places, bool by_vectors,
                                             Element (&elements)[kRuns * kLength]) {
  float values[kRuns * kLength];
#pragma unroll
  for (int i = 0; i < kRuns * kLength; ++i) values[i] = element::to_accumulator(elements[i]);
  run_steps<Element, kRuns, kLength, false>(program, places, by_vectors, values);
#pragma unroll
  for (int i = 0; i < kRuns * kLength; ++i) elements[i] = element::to_element<Element>(values[i]);
}

}  // namespace convt::epilogue
