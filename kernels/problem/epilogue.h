// Pointwise steps on results before they are stored, as kernels read them. Filled by binding/epilogue.cpp. Must not
// know: torch, CUDA, the kernels.
#pragma once

#include <cstdint>

namespace convt::epilogue {

// The values are part of the op schema (convt_ext/epilogue/steps.py). y is the result, t the step's operand.
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
  kSoftplus,  // `first` is beta, `second` the threshold
};
constexpr int32_t kNumOperations = 14;

constexpr bool has_operand(Operation operation) {
  return operation <= Operation::kDivide || operation == Operation::kLeakyRelu;
}

// Kinds of operands t.
enum class Operand : int32_t {
  kNumber,     // `first`
  kChannel,    // one element per result channel, or one for all
  kResult,     // one element per result, with the result's layout
  kBroadcast,  // any other tensor; only the separate pass supports its strides
};

template <typename Number>
struct Step {
  Operation operation;
  Operand operand;
  Number first;
  Number second;
  const void* tensor;
  int32_t channel_step;  // kChannel: elements between channels, 0 or 1
};

// Tensors of a program, in this order: y * scale, y + or - shift, y + or - result, y > 0 ? y : y * slope. Scales,
// shifts and slopes have one element per channel, or one for all. Results have one element per result, with the
// results' layout.
struct Tensors {
  const void* scales;
  const void* shifts;
  const void* results;
  const void* slopes;
  uint32_t flags;
};
constexpr uint32_t kScalesStep = 1, kShiftsStep = 2, kSlopesStep = 4;  // one element per channel
constexpr uint32_t kMinusShifts = 8, kMinusResults = 16;
constexpr uint32_t kByVectors = 32;  // results are aligned to 16 bytes

// Parts of a program. Kernels skip parts that are not set.
constexpr uint32_t kTensorsPart = 1, kFunctionPart = 2, kSlopePart = 4, kLastShiftPart = 8, kClampPart = 16,
                   kLastScalePart = 32;

// Operations that convolution kernels can fuse on a result y, in float32, in this order: y + or - addend, with the
// bias; y * scale + shift, rounded once; tensors; a function of y, or y > 0 ? y : y * slope; min(max(y + last_shift,
// low), high) * last_scale. Each occurs at most once. A scale of 1 and a shift of -0 are applied unconditionally and do
// not change any bit of y. Steps in another order run in a separate pass.
struct Program {
  int32_t num_steps;  // number of steps that the program contains
  uint32_t parts;
  const void* addend;  // one element per channel, or null; loaded with the bias
  float addend_sign;
  float scale, shift;
  Tensors tensors;
  Operation function;
  float first, second;  // operands of the function
  float slope;
  float last_shift, low, high, last_scale;
};

// The steps that a family's kernels can run on their accumulators.
enum class Fuses : int32_t {
  kNothing,
  kChannels,  // steps with numbers or per-channel operands
  kResults,   // also steps with operands of the result's shape
};

}  // namespace convt::epilogue
