#include "binding/call.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <optional>

#include "binding/device.h"
#include "plan/cache.h"

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

void check_tensor(const char* name, const Tensor& tensor, const char* shape) {
  STD_TORCH_CHECK(tensor.is_cuda(), "convt_ext: ", name, " must be a CUDA tensor");
  STD_TORCH_CHECK(tensor.dim() == 4, "convt_ext: ", name, " must be ", shape, ", got ", tensor.dim(), " dimensions");
}

void check_matches(const char* name, const Tensor& tensor, const char* first_name, const Tensor& first) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.get_device_index() == first.get_device_index(), "convt_ext: ", name,
                  " must be on the GPU of ", first_name, ", ", first.get_device_index());
  STD_TORCH_CHECK(tensor.scalar_type() == first.scalar_type(), "convt_ext: ", name, " must have the dtype of ",
                  first_name);
}

namespace {

Tensor empty_strided(int64_t dimensions, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(dimensions, sizes, strides, dtype, aoti_torch_device_type_cuda(), device, &handle));
  return Tensor(handle);
}

}  // namespace

Tensor empty_result(int64_t dimensions, const int64_t* sizes, const int64_t* strides, const Tensor& like) {
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
  return empty_strided(dimensions, sizes, strides, dtype, like.get_device_index());
}

Tensor empty_workspace(int64_t bytes, int32_t device) {
  const int64_t step = 1;
  return empty_strided(1, &bytes, &step, aoti_torch_dtype_uint8(), device);
}

void fill_zero(Tensor& tensor) { torch::stable::zero_(tensor); }

void check_candidate(int64_t candidate) {
  STD_TORCH_CHECK(candidate >= 0, "convt_ext: candidate must not be negative, got ", candidate);
}

void run_plan(const ConvTProblem& problem, int64_t candidate, Pointers pointers, int32_t device, Tensor* kept) {
  const auto plans = cached_plans(problem, device_info(device));
  STD_TORCH_CHECK(candidate < static_cast<int64_t>(plans->size()), "convt_ext: candidate must be below ", plans->size(),
                  ", got ", candidate);
  if (!can_launch(problem, (*plans)[candidate], pointers)) {
    // Kept weights are in this plan's order, and a caller who is not told otherwise takes them for packed.
    STD_TORCH_CHECK(kept == nullptr, "convt_ext: with packed weights input and weight must begin on 16 bytes");
    candidate = 0;  // the best that can
    while (!can_launch(problem, (*plans)[candidate], pointers)) ++candidate;
  }
  const Plan& plan = (*plans)[candidate];
  const bool keeps = kept != nullptr && plan.packed_bytes > 0;
  if (keeps) {
    STD_TORCH_CHECK(kept->numel() * static_cast<int64_t>(kept->element_size()) >= plan.packed_bytes,
                    "convt_ext: packed must have ", plan.packed_bytes, " bytes at least");
    pointers.packed = kept->mutable_data_ptr();
  }
  const int64_t bytes = plan.workspace_bytes - (keeps ? plan.packed_bytes : 0);
  std::optional<Tensor> workspace;
  if (bytes > 0) {
    workspace = empty_workspace(bytes, device);
    pointers.workspace = workspace->mutable_data_ptr();
    if (!keeps && plan.packed_bytes > 0) {
      pointers.packed = pointers.workspace;
      pointers.workspace = static_cast<char*>(pointers.workspace) + plan.packed_bytes;
    }
  }
  launch(problem, plan, pointers, current_stream(device));
}

}  // namespace convt::binding
