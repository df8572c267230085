// Pointwise steps that run on results before they are stored: the program of an epilogue, as kernels read it.
// Filled by binding/epilogue.cpp. Must not know: torch, CUDA, who runs it.
#pragma once

#include <cstdint>

namespace convt::epilogue {

// The values are part of the op schema (convt_ext/epilogue.py). y is the result, t the step's operand.
enum class Operation : int32_t {
  kAdd,       // y + t
  kSubtract,  // y - t
  kMultiply,  // y * t
  kDivide,    // y / t
  kClamp,     // min(max(y, first), second)
  kLeakyRelu, // y > 0 ? y : y * t
  kSilu,
  kGelu,
  kGeluTanh,
  kTanh,
  kSigmoid,
  kHardswish,
  kMish,
  kSoftplus,  // beta is `first`, the threshold `second`
};
constexpr int32_t kNumOperations = 14;

constexpr bool has_operand(Operation operation) {
  return operation <= Operation::kDivide || operation == Operation::kLeakyRelu;
}

// What t is.
enum class Operand : int32_t {
  kNumber,     // `first`
  kChannel,    // an element for each result channel, or one for all
  kResult,     // an element for each result, in the result's own order
  kBroadcast,  // any other tensor: of these a pass of its own knows the strides, kernels of convolutions do not
};

template <typename Number>
struct Step {
  Operation operation;
  Operand operand;
  Number first;
  Number second;
  const void* tensor;
  int32_t channel_step;  // of kChannel: elements from a channel to the next, 0 or 1
};

// More steps than these are several programs.
constexpr int32_t kMostSteps = 8;

// What kernels of convolutions run, in float32.
struct Program {
  int32_t num_steps;
  bool by_vectors;  // all operands of the result's shape begin on 16 bytes
  Step<float> steps[kMostSteps];
};

// What of a program a family's kernels can run on their accumulators.
enum class Fuses : int32_t {
  kNothing,
  kChannels,  // steps whose operands are numbers or channels'
  kResults,   // those and operands of the result's shape
};

}  // namespace convt::epilogue
