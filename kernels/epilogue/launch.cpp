#include <algorithm>

#include "epilogue/pass.h"
#include "launch/kernel.h"

namespace convt {
namespace {

template <typename Number>
epilogue::PassParams<Number> pass_params(const EpiloguePass& pass, int32_t first, void* result) {
  epilogue::PassParams<Number> params{};
  // The result's axes in memory order.
  const int order[2][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}};
  const int (&axes)[4] = order[pass.channels_last ? 1 : 0];
  params.result = result;
  params.end = 1;
  for (int axis = 0; axis < 4; ++axis) {
    params.end *= pass.size[axis];
    if (axis > 0) params.size[axis - 1] = pass.size[axes[axis]];
  }
  params.exact = pass.exact;
  params.num_steps = std::min(epilogue::kMostSteps, pass.num_steps - first);
  for (int32_t i = 0; i < params.num_steps; ++i) {
    const epilogue::Step<double>& step = pass.steps[first + i];
    params.steps[i] = {
        step.operation, step.operand,     static_cast<Number>(step.first), static_cast<Number>(step.second),
        step.tensor,    step.channel_step};
    for (int axis = 0; axis < 4; ++axis) params.stride[i][axis] = pass.stride[first + i][axes[axis]];
    params.finds_places = params.finds_places || step.operand == epilogue::Operand::kChannel ||
                          step.operand == epilogue::Operand::kBroadcast;
  }
  return params;
}

template <typename Number>
void launch_some(const EpiloguePass& pass, int32_t first, void* result, cudaStream_t stream) {
  const epilogue::PassParams<Number> params = pass_params<Number>(pass, first, result);
  const int64_t of_block = int64_t{epilogue::kPassThreads} * epilogue::kPassBytes / element_bytes(pass.dtype);
  // Large results take several iterations per thread. The limit exceeds what any GPU runs at once.
  constexpr int64_t kMostBlocks = 1 << 14;
  const int64_t blocks = std::min(kMostBlocks, (params.end + of_block - 1) / of_block);
  launch_kernel(epilogue::run_pass(pass.dtype), Grid{"epilogue_pass", blocks, dim3(epilogue::kPassThreads)}, stream,
                params);
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
