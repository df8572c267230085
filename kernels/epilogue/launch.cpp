#include <algorithm>

#include "epilogue/pass.h"
#include "launch/kernel.h"

namespace convt {
namespace {

bool finds_place(epilogue::Operand operand) {
  return operand == epilogue::Operand::kChannel || operand == epilogue::Operand::kBroadcast;
}

// Makes adjacent axes one axis if every operand that needs coordinates has one stride along both, so that a place takes
// fewer divisions. The outermost axis and those before it get the largest size.
template <typename Number>
void merge_axes(int64_t (&size)[4], epilogue::PassParams<Number>* params) {
  int32_t to = 3;
  const auto move = [&](int32_t axis, int32_t place) {
    size[place] = size[axis];
    for (int32_t i = 0; i < params->num_steps; ++i) params->stride[i][place] = params->stride[i][axis];
  };
  const auto merges = [&](int32_t axis) {
    if (size[axis] * size[to] > INT32_MAX) return false;
    for (int32_t i = 0; i < params->num_steps; ++i) {
      const int64_t (&stride)[4] = params->stride[i];
      if (finds_place(params->steps[i].operand) && stride[axis] != size[to] * stride[to]) return false;
    }
    return true;
  };
  for (int32_t axis = 2; axis >= 0; --axis) {
    if (size[axis] == 1) continue;
    if (size[to] == 1) {
      move(axis, to);
    } else if (merges(axis)) {
      size[to] *= size[axis];
    } else {
      move(axis, --to);
    }
  }
  std::fill_n(size, to + 1, INT64_MAX);
}

template <typename Number>
epilogue::PassParams<Number> pass_params(const EpiloguePass& pass, int32_t first, void* result) {
  epilogue::PassParams<Number> params{};
  // The result's axes in memory order.
  const int order[2][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}};
  const int (&axes)[4] = order[pass.channels_last ? 1 : 0];
  params.result = result;
  params.end = pass.size[0] * pass.size[1] * pass.size[2] * pass.size[3];
  params.exact = pass.exact;
  params.num_steps = std::min(epilogue::kMostSteps, pass.num_steps - first);
  for (int32_t i = 0; i < params.num_steps; ++i) {
    const epilogue::Step<double>& step = pass.steps[first + i];
    params.steps[i] = {
        step.operation, step.operand,     static_cast<Number>(step.first), static_cast<Number>(step.second),
        step.tensor,    step.channel_step};
    for (int axis = 0; axis < 4; ++axis) params.stride[i][axis] = pass.stride[first + i][axes[axis]];
    params.finds_places = params.finds_places || finds_place(step.operand);
  }
  int64_t size[4];
  for (int axis = 0; axis < 4; ++axis) size[axis] = pass.size[axes[axis]];
  merge_axes(size, &params);
  for (int axis = 1; axis < 4; ++axis) {
    params.size[axis - 1] = size[axis];
    params.by_size[axis - 1] = FastDivmod::of(static_cast<int32_t>(std::min<int64_t>(size[axis], INT32_MAX)));
  }
  return params;
}

template <typename Number>
void launch_some(const EpiloguePass& pass, int32_t first, void* result, cudaStream_t stream) {
  const epilogue::PassParams<Number> params = pass_params<Number>(pass, first, result);
  constexpr int64_t kBlockBytes = int64_t{epilogue::kPassThreads} * epilogue::kPassVectors * epilogue::kPassBytes;
  const int64_t of_block = kBlockBytes / element_bytes(pass.dtype);
  const int64_t blocks = (params.end + of_block - 1) / of_block;
  launch_kernel(epilogue::run_pass(pass.dtype, params.end >= INT32_MAX),
                Grid{"epilogue_pass", blocks, dim3(epilogue::kPassThreads)}, stream, params);
}

}  // namespace

void launch_epilogue_pass(const EpiloguePass& pass, void* result, cudaStream_t stream) {
  for (int32_t first = 0; first < pass.num_steps; first += epilogue::kMostSteps) {
    if (pass.dtype == DataType::kFloat64) {
      launch_some<double>(pass, first, result, stream);
    } else {
      launch_some<float>(pass, first, result, stream);
    }
  }
}

}  // namespace convt
