#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "launch/tensor_map.h"
#include "patch_sm90a/instances.h"
#include "patch_sm90a/runs_layout.h"
#include "patch_sm90a/runs_params.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(patch_sm90a, CONVT_PATCH_RUNS_INSTANCES, const void*)

namespace {

// The weights as [channel of the result][channel of the source, tap], the latter innermost.
CUtensorMap map_weights(const ConvTProblem& problem, const PatchRunsTile& tile, const void* weights) {
  const int64_t row = int64_t{problem.c_out} * problem.h.kernel * problem.w.kernel;
  TensorBox box = {
      weights,
      {row, problem.c_in, 1, 1},
      {problem.w_stride[0], 0, 0},
      {static_cast<int32_t>(128 / element_bytes(problem.dtype)), tile.channels, 1, 1},
  };
  box.swizzle_bytes = 128;
  box.rounded = problem.dtype == DataType::kFloat32;
  return make_tensor_map(problem.dtype, box);
}

// grad_output as [channel][image][line][column]: a box is the lines of a tile's rows, of a stage's channels.
CUtensorMap map_lines(const ConvTProblem& problem, const PatchRunsLayout& layout, const void* source) {
  const int64_t* stride = problem.y_stride;
  const int32_t rows = std::min(layout.rows, problem.h.in);
  const TensorBox box = {
      source,
      {problem.w.out, problem.h.out, problem.batch, problem.c_out},
      {stride[2], stride[0], stride[1]},
      {problem.w.out, rows * layout.kernel_h, layout.rows / rows, layout.stage_channels},
  };
  return make_tensor_map(problem.dtype, box);
}

}  // namespace

void launch_patch_runs(const ConvTProblem& problem, const Plan& plan, const PatchRunsTile& tile,
                       const Pointers& pointers, cudaStream_t stream) {
  if (tile.instance < 0 || tile.instance >= kNumPatchRunsInstances ||
      kPatchRunsInstances[tile.instance].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no patch kernel for runs number " + std::to_string(tile.instance) +
                             " computes in " + name_of(problem.dtype));
  }
  patch_sm90a::RunsParams params{};
  const bool legal = make_patch_runs_layout(problem, tile, &params);
  if (!legal || params.shared_bytes != plan.shared_bytes || params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  params.weights = map_weights(problem, tile, pointers.w);
  if (params.boxes) params.lines = map_lines(problem, params, pointers.y);
  params.source = pointers.y;
  params.result = pointers.x;
  const int64_t element = element_bytes(problem.dtype);
  for (int i = 0; i < 2; ++i) params.source_stride[i] = problem.y_stride[i] * element;
  std::copy_n(problem.x_stride, 2, params.result_stride);
  params.n_channels = static_cast<int32_t>(problem.c_in);
  const int64_t together = problem.x_stride[0] | problem.x_stride[1] | int64_t{problem.h.in} * problem.w.in |
                           int64_t{params.rows} * problem.w.in;
  params.quads = together % 4 == 0 && is_aligned(params.result, 4 * element);
  launch_kernel(patch_sm90a::kKernels[tile.instance](), grid_of(plan, false, tile.splits), stream, params);
}

}  // namespace convt
