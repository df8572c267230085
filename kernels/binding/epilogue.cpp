// The ops that run epilogues, and the conversion of their steps to programs.
#include "binding/epilogue.h"

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <limits>

#include "binding/call.h"

namespace convt::binding {

using torch::stable::Tensor;

namespace {

constexpr int64_t kHasTensor = 256;  // flag in the schema's operation codes

}  // namespace

Epilogue::Epilogue(const EpilogueArguments& arguments, const int64_t* size, const int64_t* stride, int64_t planes,
                   DataType dtype, int32_t device)
    : dtype_(dtype), planes_(planes) {
  std::copy_n(size, 4, size_.begin());
  std::copy_n(stride, 4, stride_.begin());
  if (planes > 0) size_[2] *= planes;
  const auto& [operations, numbers, tensors] = arguments;
  STD_TORCH_CHECK(numbers.size() == 2 * operations.size(), "convt_ext: numbers must be two for each of the ",
                  operations.size(), " operations, got ", numbers.size());
  size_t next = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    const bool has_tensor = operations[i] >= kHasTensor;
    STD_TORCH_CHECK(!has_tensor || next < tensors.size(),
                    "convt_ext: an epilogue has more steps with tensors than the ", tensors.size(), " tensors");
    add_step(operations[i] - (has_tensor ? kHasTensor : 0), numbers[2 * i], numbers[2 * i + 1],
             has_tensor ? &tensors[next++] : nullptr, device);
  }
  STD_TORCH_CHECK(next == tensors.size(), "convt_ext: an epilogue has ", tensors.size(), " tensors, but ", next,
                  " steps with one");
}

void Epilogue::add_step(int64_t code, double first, double second, const Tensor* tensor, int32_t device) {
  using epilogue::Operation;
  STD_TORCH_CHECK(code >= 0 && code < epilogue::kNumOperations, "convt_ext: no operation of an epilogue has number ",
                  code);
  epilogue::Step<double> step{static_cast<Operation>(code), epilogue::Operand::kNumber, first, second, nullptr, 0};
  std::array<int64_t, 4> stride{};
  if (tensor != nullptr) {
    STD_TORCH_CHECK(epilogue::has_operand(step.operation), "convt_ext: operation ", code,
                    " of an epilogue has no tensor");
    STD_TORCH_CHECK(tensor->is_cuda() && tensor->get_device_index() == device,
                    "convt_ext: a tensor of an epilogue must be on the result's GPU, ", device);
    STD_TORCH_CHECK(data_type_of("a tensor of an epilogue", *tensor) == dtype_,
                    "convt_ext: a tensor of an epilogue must have the result's dtype");
    stride = strides_of(*tensor);
    step.tensor = tensor->const_data_ptr();
    step.operand = operand_of(stride);
    step.channel_step = static_cast<int32_t>(stride[1]);
  } else if (step.operation == Operation::kSubtract) {
    step.operation = Operation::kAdd;
    step.first = -first;
  } else if (step.operation == Operation::kDivide) {
    // PyTorch on a GPU multiplies by the rounded reciprocal.
    step.operation = Operation::kMultiply;
    step.first = dtype_ == DataType::kFloat64 ? 1.0 / first : 1.0f / static_cast<float>(first);
  }
  steps_.push_back(step);
  strides_.push_back(stride);
}

std::array<int64_t, 4> Epilogue::strides_of(const Tensor& tensor) const {
  const bool has_depth = planes_ > 0;
  const int64_t dims = tensor.dim(), most = has_depth ? 5 : 4;
  STD_TORCH_CHECK(dims <= most, "convt_ext: a tensor of an epilogue must have at most ", most, " dimensions, got ",
                  dims);
  const int64_t rows = has_depth ? size_[2] / planes_ : size_[2];  // per plane
  const int64_t sizes[5] = {size_[0], size_[1], has_depth ? planes_ : 1, rows, size_[3]};
  int64_t stride[5]{};
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t axis = has_depth || dims - i <= 2 ? 5 - dims + i : 4 - dims + i, length = tensor.size(i);
    STD_TORCH_CHECK(length == 1 || length == sizes[axis], "convt_ext: a tensor of an epilogue has size ", length,
                    " where the result has ", sizes[axis], " and must broadcast to it");
    stride[axis] = length == 1 ? 0 : tensor.stride(i);
  }
  const bool one_row = rows == 1;
  STD_TORCH_CHECK(!has_depth || planes_ == 1 || one_row || stride[2] == rows * stride[3],
                  "convt_ext: the rows of all planes of an epilogue's tensor must have one stride, got ", stride[3],
                  " in a plane of ", rows, " rows and ", stride[2], " between planes");
  return {stride[0], stride[1], one_row && has_depth ? stride[2] : stride[3], stride[4]};
}

epilogue::Operand Epilogue::operand_of(const std::array<int64_t, 4>& stride) const {
  if (stride[0] == 0 && stride[2] == 0 && stride[3] == 0 && (stride[1] == 0 || stride[1] == 1)) {
    return epilogue::Operand::kChannel;
  }
  for (int axis = 0; axis < 4; ++axis) {
    if (size_[axis] > 1 && stride[axis] != stride_[axis]) return epilogue::Operand::kBroadcast;
  }
  return epilogue::Operand::kResult;
}

namespace {

// The operations of a program, in order.
enum Slot { kAddend, kScale, kShift, kScales, kShifts, kResults, kSlopes, kFunction, kLastShift, kClamp, kLastScale };

epilogue::Program empty_program() {
  epilogue::Program program{};
  program.scale = program.last_scale = 1;
  program.shift = program.last_shift = -0.0f;  // preserves the sign of zero
  program.low = -std::numeric_limits<float>::infinity();
  program.high = std::numeric_limits<float>::infinity();
  return program;
}

}  // namespace

bool Epilogue::add_to(epilogue::Program* program, const epilogue::Step<double>& step, epilogue::Fuses fuses,
                      int* slot) const {
  using epilogue::Operand, epilogue::Operation;
  const auto first = static_cast<float>(step.first), second = static_cast<float>(step.second);
  const bool is_number = step.operand == Operand::kNumber, by_channel = step.operand == Operand::kChannel;
  epilogue::Tensors& tensors = program->tensors;
  const auto flag = [&tensors](bool is_set, uint32_t one) { tensors.flags |= is_set ? one : 0; };
  const bool subtracts = step.operation == Operation::kSubtract, every = step.channel_step != 0;
  const auto take = [slot](Slot wanted) {
    if (*slot > wanted) return false;
    *slot = wanted + 1;
    return true;
  };
  switch (step.operation) {
    case Operation::kMultiply:
      if (by_channel && take(kScales)) {
        tensors.scales = step.tensor;
        flag(every, epilogue::kScalesStep);
        program->parts |= epilogue::kTensorsPart;
      } else if (is_number && take(kScale)) {
        program->scale = first;
      } else if (is_number && take(kLastScale)) {
        program->last_scale = first;
        program->parts |= epilogue::kLastScalePart;
      } else {
        return false;
      }
      break;
    case Operation::kAdd:
    case Operation::kSubtract:
      if (by_channel && every && take(kAddend)) {
        program->addend = step.tensor;
        program->addend_sign = subtracts ? -1.0f : 1.0f;
        return true;
      }
      if (by_channel && take(kShifts)) {
        tensors.shifts = step.tensor;
        flag(every, epilogue::kShiftsStep);
        flag(subtracts, epilogue::kMinusShifts);
        program->parts |= epilogue::kTensorsPart;
      } else if (is_number && take(kShift)) {
        program->shift = first;
      } else if (is_number && take(kLastShift)) {
        program->last_shift = first;
        program->parts |= epilogue::kLastShiftPart;
      } else if (step.operand == Operand::kResult && fuses == epilogue::Fuses::kResults && take(kResults)) {
        tensors.results = step.tensor;
        flag(subtracts, epilogue::kMinusResults);
        flag(reinterpret_cast<uintptr_t>(step.tensor) % 16 == 0, epilogue::kByVectors);
        program->parts |= epilogue::kTensorsPart;
      } else {
        return false;
      }
      break;
    case Operation::kDivide: return false;  // division by a number is already a product
    case Operation::kClamp:
      if (!take(kClamp)) return false;
      program->low = first, program->high = second;
      program->parts |= epilogue::kClampPart;
      break;
    case Operation::kLeakyRelu:
      if (by_channel && take(kSlopes)) {
        tensors.slopes = step.tensor;
        flag(every, epilogue::kSlopesStep);
        program->parts |= epilogue::kTensorsPart;
      } else if (is_number && take(kFunction)) {
        program->slope = first;
        program->parts |= epilogue::kSlopePart;
      } else {
        return false;
      }
      break;
    default:
      if (!take(kFunction)) return false;
      program->function = step.operation;
      program->first = first, program->second = second;
      program->parts |= epilogue::kFunctionPart;
  }
  return true;
}

epilogue::Program Epilogue::program(epilogue::Fuses fuses) const {
  epilogue::Program program = empty_program();
  if (fuses == epilogue::Fuses::kNothing || dtype_ == DataType::kFloat64) return program;
  int slot = 0;
  for (const epilogue::Step<double>& step : steps_) {
    if (!add_to(&program, step, fuses, &slot)) break;
    ++program.num_steps;
  }
  return program;
}

void Epilogue::run(int32_t first, bool exact, void* result, cudaStream_t stream) const {
  if (first == static_cast<int32_t>(steps_.size())) return;
  EpiloguePass pass{};
  pass.dtype = dtype_;
  pass.channels_last = is_channels_last(stride_.data());
  std::copy_n(size_.begin(), 4, pass.size);
  pass.exact = exact;
  pass.num_steps = static_cast<int32_t>(steps_.size()) - first;
  pass.steps = steps_.data() + first;
  std::vector<int64_t> strides(4 * static_cast<size_t>(pass.num_steps));
  for (int32_t i = 0; i < pass.num_steps; ++i) std::copy_n(strides_[first + i].begin(), 4, &strides[4 * i]);
  pass.stride = reinterpret_cast<const int64_t (*)[4]>(strides.data());
  launch_epilogue_pass(pass, result, stream);
}

void finish(Tensor result, bool exact, const std::vector<int64_t>& operations, const std::vector<double>& numbers,
            const std::vector<Tensor>& tensors) {
  const bool has_depth = result.dim() == 5;
  check_tensor("result", result, has_depth ? 3 : 2, "(N, C, D, H, W)");
  if (result.numel() == 0) return;
  const int64_t planes = has_depth ? result.size(2) : 1;
  const int64_t size[4] = {result.size(0), result.size(1), result.size(has_depth ? 3 : 2),
                           result.size(has_depth ? 4 : 3)};
  int64_t stride[4], plane, dense[4];
  read_strides(result, stride, &plane);
  bool is_dense = false;
  for (int last = 0; last < 2 && !is_dense; ++last) {
    const int64_t dense_plane = fill_dense_strides(size, last == 1, dense, planes);
    is_dense = planes == 1 || plane == dense_plane;
    for (int i = 0; i < 4; ++i) is_dense = is_dense && (size[i] == 1 || stride[i] == dense[i]);
  }
  STD_TORCH_CHECK(is_dense, "convt_ext: result must be dense, contiguous or channels_last");
  const int32_t device = result.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Epilogue epilogue({operations, numbers, tensors}, size, dense, has_depth ? planes : 0,
                          data_type_of("result", result), device);
  epilogue.run(0, exact, result.mutable_data_ptr(), current_stream(device));
}

namespace {

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CUDA, library) { library.impl("_finish", TORCH_BOX(&finish)); }

}  // namespace
}  // namespace convt::binding
