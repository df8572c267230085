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

// Tensors of a program, in this order: y * scale, y + or - shift, y + or - result, y > 0 ? y : y * slope. Of scales,
// shifts and slopes every channel has an element, or all have one; of results each result, in the results' own order.
struct Tensors {
  const void* scales;
  const void* shifts;
  const void* results;
  const void* slopes;
  uint32_t flags;
};
constexpr uint32_t kScalesStep = 1, kShiftsStep = 2, kSlopesStep = 4;  // an element for every channel
constexpr uint32_t kMinusShifts = 8, kMinusResults = 16;
constexpr uint32_t kByVectors = 32;  // results begin on 16 bytes

// Parts of a program that kernels skip where they are not there.
constexpr uint32_t kTensorsPart = 1, kFunctionPart = 2, kSlopePart = 4, kLastShiftPart = 8, kClampPart = 16,
                   kLastScalePart = 32;

// What kernels of convolutions run on a result y, in float32, in this order: y + or - addend, with the bias;
// y * scale + shift, rounded once; tensors; a function of y, or y > 0 ? y : y * slope;
// min(max(y + last_shift, low), high) * last_scale. Each is there once at most. A scale of 1 and a shift of -0, which
// are multiplied and added without asking, leave y as it is to the bit. Steps in another order are for a pass of its
// own.
struct Program {
  int32_t num_steps;  // that this stands for
  uint32_t parts;
  const void* addend;  // an element for every channel, or null: kernels load it where they load a bias
  float addend_sign;
  float scale, shift;
  Tensors tensors;
  Operation function;
  float first, second;  // of the function
  float slope;
  float last_shift, low, high, last_scale;
};

}  // namespace convt::epilogue
