// Runs an epilogue program on results in registers. All tensor-core kernels use it: they pass a few runs of contiguous
// values and their positions.
//
// The order of operations is fixed (problem/epilogue.h). A loop over steps in any order took as long as a separate
// pass:
// few warps store, and each waited to fetch the steps for every few values. Called by the epilogues of the families.
// Must not know: how a result is stored.
#pragma once

#include <cstdint>
#include <type_traits>

#include "element/arithmetic.cuh"
#include "epilogue/operation.cuh"
#include "problem/epilogue.h"

namespace convt::epilogue {

// Positions of kRuns runs of values. The values of a run are adjacent: columns of one channel, or channels of one
// position.
template <int kRuns>
struct Places {
  int32_t channel[kRuns];  // of the first value, counted over all groups
  int32_t left[kRuns];  // number of values in the run that are results; none if not positive
  int64_t offset[kRuns];  // elements from the first result to the first value
  int32_t step = 1;  // elements between values of a run
};

// Number of runs to process per call, at most `most`. The values of one call overlap the latency of functions and
// loads, so one call with few values takes as long as a full one.
constexpr int runs_together(int length, int most, int values = 16) {
  return length >= values ? 1 : values / length < most ? values / length : most;
}

template <int kCount>
struct Values {
  float of[kCount];
};

// Loads the operands of the values' channels.
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

// Loads operands with the layout of the results. All loads of whole runs are issued before the first is used.
template <typename Element, int kRuns, int kLength>
__device__ __forceinline__ void load_results(const Element* g, bool by_vectors, const Places<kRuns>& places,
                                             float (&t)[kRuns * kLength]) {
  constexpr int kBytes = kLength * static_cast<int>(sizeof(Element));
  using Word = std::conditional_t<kBytes % 16 == 0, uint4, std::conditional_t<kBytes % 8 == 0, uint2, uint32_t>>;
  constexpr int kWords = kBytes / static_cast<int>(sizeof(Word));
  Element elements[kRuns * kLength];
#pragma unroll
  for (int run = 0; run < kRuns; ++run)
    by_vectors = by_vectors && (places.left[run] <= 0 || places.left[run] >= kLength);
  if (kWords > 0 && by_vectors) {
    Word words[kRuns * (kWords > 0 ? kWords : 1)];
#pragma unroll
    for (int i = 0; i < kRuns * kWords; ++i) {
      const int run = i / kWords;
      words[i] = Word{};
      if (places.left[run] > 0) {
        words[i] = __ldcs(reinterpret_cast<const Word*>(g + places.offset[run]) + i % kWords);
      }
    }
    memcpy(elements, words, sizeof(elements));
  } else {
#pragma unroll
    for (int i = 0; i < kRuns * kLength; ++i) {
      const int run = i / kLength;
      elements[i] = Element{};
      if (i % kLength < places.left[run]) elements[i] = g[places.offset[run] + i % kLength * places.step];
    }
  }
#pragma unroll
  for (int i = 0; i < kRuns * kLength; ++i) t[i] = element::to_accumulator(elements[i]);
}

// Unary functions. Not inlined: copies at every store would be most of a kernel's code, which would then be fetched
// from memory for every tile.
template <typename Element, int kCount>
__device__ __noinline__ Values<kCount> apply(Operation function, float first, float second, Values<kCount> values) {
  constexpr bool kRough = std::is_same_v<Element, __nv_bfloat16>;
  const auto each = [&values](auto of) {
#pragma unroll
    for (float& value : values.of) value = of(value);
  };
  switch (function) {  // one branch for all values
    case Operation::kSilu: each([](float y) { return y * quick_sigmoid<kRough>(y); }); break;
    case Operation::kGelu: each([](float y) { return quickly<kRough>(Operation::kGelu, y, 0, 0); }); break;
    case Operation::kGeluTanh: each([](float y) { return quickly<kRough>(Operation::kGeluTanh, y, 0, 0); }); break;
    case Operation::kTanh: each([](float y) { return quickly<kRough>(Operation::kTanh, y, 0, 0); }); break;
    case Operation::kSigmoid: each([](float y) { return quick_sigmoid<kRough>(y); }); break;
    case Operation::kHardswish: each([](float y) { return quickly<kRough>(Operation::kHardswish, y, 0, 0); }); break;
    case Operation::kMish: each([](float y) { return quickly<kRough>(Operation::kMish, y, 0, 0); }); break;
    default: each([first, second](float y) { return quickly<kRough>(Operation::kSoftplus, y, first, second); });
  }
  return values;
}

// Tensor operands of a program. Not inlined, for the same reason.
template <typename Element, int kRuns, int kLength, bool kChannels>
__device__ __noinline__ Values<kRuns * kLength> add_tensors(Tensors tensors, bool by_vectors, Places<kRuns> places,
                                                            Values<kRuns * kLength> values) {
  constexpr int kCount = kRuns * kLength;
  float t[kCount];
  const auto load_by_channel = [&](const void* g, uint32_t step) {
    load_channels<Element, kRuns, kLength, kChannels>(static_cast<const Element*>(g),
                                                      (tensors.flags & step) != 0 ? 1 : 0, places, t);
  };
  const auto add = [&](uint32_t minus) {
    const float sign = (tensors.flags & minus) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.of[i] = fmaf(t[i], sign, values.of[i]);
  };
  if (tensors.scales != nullptr) {
    load_by_channel(tensors.scales, kScalesStep);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.of[i] *= t[i];
  }
  if (tensors.shifts != nullptr) {
    load_by_channel(tensors.shifts, kShiftsStep);
    add(kMinusShifts);
  }
  if (tensors.results != nullptr) {
    load_results<Element, kRuns, kLength>(static_cast<const Element*>(tensors.results), by_vectors, places, t);
    add(kMinusResults);
  }
  if (tensors.slopes != nullptr) {
    load_by_channel(tensors.slopes, kSlopesStep);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.of[i] = values.of[i] > 0 ? values.of[i] : values.of[i] * t[i];
  }
  return values;
}

// Runs a program on kRuns runs of kLength values each. kChannels: the values of a run are adjacent channels.
// `by_vectors`: runs are contiguous in the result, and aligned to their size, up to 16 bytes. `program` is a kernel
// parameter, so that its numbers are constant-bank operands of instructions.
template <typename Element, int kRuns, int kLength, bool kChannels>
__device__ __forceinline__ void run_steps(const Program& program, const Places<kRuns>& places, bool by_vectors,
                                          float (&values)[kRuns * kLength]) {
#pragma unroll
  for (float& value : values) value = fmaf(value, program.scale, program.shift);
  const uint32_t parts = program.parts;
  if (parts == 0) return;
  if ((parts & (kTensorsPart | kFunctionPart)) != 0) {
    Values<kRuns * kLength> r;
    memcpy(r.of, values, sizeof(values));
    if ((parts & kTensorsPart) != 0) {
      by_vectors = by_vectors && (program.tensors.flags & kByVectors) != 0;
      r = add_tensors<Element, kRuns, kLength, kChannels>(program.tensors, by_vectors, places, r);
    }
    if ((parts & kFunctionPart) != 0) r = apply<Element>(program.function, program.first, program.second, r);
    memcpy(values, r.of, sizeof(values));
  }
  if ((parts & kSlopePart) != 0) {
#pragma unroll
    for (float& value : values) value = value > 0 ? value : value * program.slope;
  }
  if ((parts & kLastShiftPart) != 0) {
#pragma unroll
    for (float& value : values) value += program.last_shift;
  }
  if ((parts & kClampPart) != 0) {
#pragma unroll
    for (float& value : values) value = clamp(value, program.low, program.high);
  }
  if ((parts & kLastScalePart) != 0) {
#pragma unroll
    for (float& value : values) value *= program.last_scale;
  }
}

// Runs the program on results that are already rounded to elements, in runs of adjacent columns of a channel.
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
