#include "binding/call.h"

#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch/kernel.h"
#include "plan/cache.h"
#include "plan/family.h"
#include "problem/shapes.h"
#include "problem/volume.h"

namespace convt::binding {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

DataType data_type_of(const char* name, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return DataType::kFloat32;
    case ScalarType::Double: return DataType::kFloat64;
    case ScalarType::Half: return DataType::kFloat16;
    case ScalarType::BFloat16: return DataType::kBFloat16;
    default: break;
  }
  STD_TORCH_CHECK(false, "convt_ext: ", name, " must be float16, bfloat16, float32 or float64");
}

void check_tensor(const char* name, const Tensor& tensor, int dims, const char* shape) {
  STD_TORCH_CHECK(tensor.is_cuda(), "convt_ext: ", name, " must be a CUDA tensor");
  STD_TORCH_CHECK(tensor.dim() == dims + 2, "convt_ext: ", name, " must have ", dims + 2, " dimensions, ", shape,
                  dims == 3 ? "" : " without the depth", ", got ", tensor.dim());
}

void read_strides(const Tensor& tensor, int64_t (&strides)[4], int64_t* plane) {
  const int depth = tensor.dim() == 5 ? 1 : 0;
  for (int i = 0; i < 4; ++i) strides[i] = tensor.stride(i < 2 ? i : i + depth);
  *plane = depth == 1 ? tensor.stride(2) : 0;
}

void check_matches(const char* name, const Tensor& tensor, const char* first_name, const Tensor& first) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.get_device_index() == first.get_device_index(), "convt_ext: ", name,
                  " must be on the GPU of ", first_name, ", ", first.get_device_index());
  STD_TORCH_CHECK(tensor.scalar_type() == first.scalar_type(), "convt_ext: ", name, " must have the dtype of ",
                  first_name);
}

namespace {

// Empty if PyTorch's allocator fails.
std::optional<Tensor> try_empty_strided(int64_t dimensions, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                        int32_t device) {
  AtenTensorHandle handle = nullptr;
  const QuietFailures quiet;
  if (aoti_torch_empty_strided(dimensions, sizes, strides, dtype, aoti_torch_device_type_cuda(), device, &handle)) {
    return std::nullopt;
  }
  return Tensor(handle);
}

std::optional<Tensor> try_workspace(int64_t bytes, int32_t device) {
  const int64_t step = 1;
  return try_empty_strided(1, &bytes, &step, aoti_torch_dtype_uint8(), device);
}

// The stable ABI reports that an allocation failed, but not why. The text starts like PyTorch's, so that ops.py
// recognizes it and raises PyTorch's exception type. An error of an earlier kernel makes every call fail and is
// reported instead.
[[noreturn]] void fail_to_allocate(int64_t bytes, int32_t device) {
  size_t free = 0, total = 0;
  const cudaError_t status = cudaMemGetInfo(&free, &total);  // any call that accesses the GPU reports the error
  if (is_of_earlier_kernel(status)) throw std::runtime_error(words_of_earlier_kernel(status));
  char gib[32];
  std::snprintf(gib, sizeof(gib), "%.2f", static_cast<double>(bytes) / (1 << 30));
  throw std::runtime_error("CUDA out of memory. Tried to allocate " + std::string(gib) + " GiB (" +
                           std::to_string(bytes) + " bytes on GPU " + std::to_string(device) + ", by convt_ext)");
}

}  // namespace

Tensor empty_result(int64_t dimensions, const int64_t* sizes, const int64_t* strides, const Tensor& like) {
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
  std::optional<Tensor> result = try_empty_strided(dimensions, sizes, strides, dtype, like.get_device_index());
  if (result.has_value()) return *result;
  int64_t bytes = static_cast<int64_t>(like.element_size());
  for (int64_t i = 0; i < dimensions; ++i) bytes *= sizes[i];
  fail_to_allocate(bytes, like.get_device_index());
}

Tensor empty_dense(int dims, const int64_t (&sizes)[4], const int64_t (&strides)[4], int64_t planes, int64_t plane,
                   const Tensor& like) {
  if (dims == 2) return empty_result(4, sizes, strides, like);
  const int64_t all_sizes[5] = {sizes[0], sizes[1], planes, sizes[2], sizes[3]};
  const int64_t all_strides[5] = {strides[0], strides[1], plane, strides[2], strides[3]};
  return empty_result(5, all_sizes, all_strides, like);
}

Tensor empty_workspace(int64_t bytes, int32_t device) {
  std::optional<Tensor> workspace = try_workspace(bytes, device);
  if (!workspace.has_value()) fail_to_allocate(bytes, device);
  return *workspace;
}

void fill_zero(Tensor& tensor) { torch::stable::zero_(tensor); }

namespace {

// Allocates the plan's workspace, or only its unpacked part if `kept` provides the packed weights. Returns false if
// memory is insufficient. `workspace` owns the memory.
bool add_workspace(const Plan& plan, int32_t device, Tensor* kept, Pointers* pointers,
                   std::optional<Tensor>* workspace) {
  const bool keeps = kept != nullptr && plan.packed_bytes > 0;
  if (keeps) {
    STD_TORCH_CHECK(kept->numel() * static_cast<int64_t>(kept->element_size()) >= plan.packed_bytes,
                    "convt_ext: packed must have at least ", plan.packed_bytes, " bytes");
    pointers->packed = kept->mutable_data_ptr();
  }
  const int64_t bytes = plan.workspace_bytes - (keeps ? plan.packed_bytes : 0);
  if (bytes == 0) return true;
  *workspace = try_workspace(bytes, device);
  if (!workspace->has_value()) return false;
  pointers->workspace = (*workspace)->mutable_data_ptr();
  if (!keeps && plan.packed_bytes > 0) {
    pointers->packed = pointers->workspace;
    pointers->workspace = static_cast<char*>(pointers->workspace) + plan.packed_bytes;
  }
  return true;
}

// Whether the class documents the plan's accumulation order. A failed allocation is then an error.
bool order_is_the_plans(const ConvTProblem& problem) {
  return problem.direction == Direction::kGradWeight &&
         (problem.precision == Precision::kIeee || problem.precision == Precision::kAten);
}

// Launches the plan, then the epilogue steps that its kernel does not fuse. Same return value as run_plan().
bool launch_then(const ConvTProblem& problem, const Plan& plan, Pointers pointers, int32_t device,
                 const Epilogue* epilogue) {
  const cudaStream_t stream = current_stream(device);
  if (!plan.gives_grad_bias) pointers.grad_bias = nullptr;
  if (epilogue == nullptr) {
    launch(problem, plan, pointers, stream);
    return pointers.grad_bias != nullptr;
  }
  const epilogue::Program steps = epilogue->program(fuses_of(*plan.family, problem));
  pointers.steps = &steps;
  launch(problem, plan, pointers, stream);
  const bool exact = problem.precision == Precision::kIeee || problem.precision == Precision::kAten;
  epilogue->run(steps.num_steps, exact, pointers.y, stream);
  return false;
}

// Runs the given candidate, or the best one that the tensors' alignment permits.
bool run_candidate(const ConvTProblem& problem, int64_t candidate, Pointers pointers, int32_t device,
                   const Epilogue* epilogue) {
  const std::vector<Plan>& plans = all_candidates(problem, device_info(device));
  STD_TORCH_CHECK(candidate >= 0 && candidate < static_cast<int64_t>(plans.size()),
                  "convt_ext: candidate must be at least 0 and below ", plans.size(), ", got ", candidate);
  if (!can_launch(problem, plans[candidate], pointers)) {
    candidate = 0;
    while (!can_launch(problem, plans[candidate], pointers)) ++candidate;
  }
  std::optional<Tensor> workspace;
  if (!add_workspace(plans[candidate], device, nullptr, &pointers, &workspace)) {
    fail_to_allocate(plans[candidate].workspace_bytes, device);
  }
  return launch_then(problem, plans[candidate], pointers, device, epilogue);
}

}  // namespace

bool run_plan(const ConvTProblem& asked, const Candidate& candidate, Pointers pointers, int32_t device, Tensor* kept,
              const Epilogue* epilogue) {
  ConvTProblem problem = asked;
  settle_strides(&problem);
  problem = without_depth(problem);
  if (candidate.only.has_value()) return run_candidate(problem, *candidate.only, pointers, device, epilogue);
  const DeviceInfo& info = device_info(device);
  const bool wants_choice = candidate.preferred == 0;
  auto plans = wants_choice ? cached_choice(problem, info) : cached_plans(problem, info, candidate.preferred);
  int64_t wanted_bytes = 0;
  for (size_t number = 0; number < plans->size(); ++number) {
    const Plan& plan = (*plans)[number];
    if (can_launch(problem, plan, pointers)) {
      Pointers with_workspace = pointers;
      std::optional<Tensor> workspace;
      if (add_workspace(plan, device, kept, &with_workspace, &workspace)) {
        return launch_then(problem, plan, with_workspace, device, epilogue);
      }
      wanted_bytes = plan.workspace_bytes;
      if (kept != nullptr || order_is_the_plans(problem)) break;
    } else {
      // Kept weights have the layout of the first plan, and the caller assumes that they are packed in it.
      STD_TORCH_CHECK(kept == nullptr, "convt_ext: with packed weights input and weight must be aligned to 16 bytes");
    }
    if (wants_choice && number == 0) plans = cached_plans(problem, info);  // they start with the choice
  }
  fail_to_allocate(wanted_bytes, device);
}

namespace {

Tensor run_candidate_op(int64_t direction, int64_t candidate, const Tensor& first, const Tensor& second,
                        const std::optional<Tensor>& bias, const std::vector<int64_t>& stride,
                        const std::vector<int64_t>& padding, const std::vector<int64_t>& output_padding, int64_t groups,
                        const std::vector<int64_t>& dilation, int64_t precision, bool channels_last,
                        const std::vector<int64_t>& operations, const std::vector<double>& numbers,
                        const std::vector<Tensor>& tensors) {
  const ConvArguments arguments{stride, padding, output_padding, groups, dilation, precision, channels_last};
  if (direction == 1) return run_grad_input(first, second, arguments, candidate);
  if (direction == 2) return run_grad_weight(first, second, arguments, candidate);
  const EpilogueArguments epilogue{operations, numbers, tensors};
  return run_forward(first, second, bias, arguments, candidate, operations.empty() ? nullptr : &epilogue);
}

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CUDA, library) { library.impl("_run_candidate", TORCH_BOX(&run_candidate_op)); }

}  // namespace
}  // namespace convt::binding
