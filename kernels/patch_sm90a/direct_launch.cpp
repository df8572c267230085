#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "launch/tensor_map.h"
#include "patch_sm90a/direct_layout.h"
#include "patch_sm90a/direct_params.h"
#include "patch_sm90a/instances.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(patch_sm90a, CONVT_PATCH_DIRECT_INSTANCES, const void*)

namespace {

// The weights as [box][channel of the source][column of the box], columns innermost.
CUtensorMap map_weights(const ConvTProblem& problem, const PatchDirectLayout& layout, const void* weights) {
  const auto row = static_cast<int32_t>(128 / element_bytes(problem.dtype));
  TensorBox box = {
      weights,
      {row, problem.c_in, layout.columns / row, 1},
      {layout.columns, row, layout.columns},
      {row, row, kDirectColumns / row, 1},
  };
  box.swizzle_bytes = 128;
  return make_tensor_map(problem.dtype, box);
}

}  // namespace

void launch_patch_direct(const ConvTProblem& problem, const Plan& plan, const PatchDirectTile& tile,
                         const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumPatchDirectInstances || kPatchDirectInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no patch kernel for weights as they are number " + std::to_string(index) +
                             " computes in " + name_of(problem.dtype));
  }
  patch_sm90a::DirectParams params{};
  const bool legal = make_patch_direct_layout(problem, tile, &params);
  if (!legal || params.shared_bytes != plan.shared_bytes || params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  params.weights = map_weights(problem, params, pointers.w);
  params.source = pointers.x;
  params.bias = pointers.bias;
  params.result = pointers.y;
  std::copy_n(problem.x_stride, 2, params.source_stride);
  std::copy_n(problem.y_stride, 3, params.result_stride);
  // Two neighbouring positions are read at once where all pairs of them are neighbours, on a multiple of both.
  const int64_t element = element_bytes(problem.dtype), image = int64_t{problem.h.in} * problem.w.in;
  params.source_pairs =
      (problem.x_stride[0] | problem.x_stride[1] | image) % 2 == 0 && is_aligned(pointers.x, 2 * element);
  // A position has two or four columns of a quad in a row of the result, which may continue the position's before.
  const int32_t columns = std::min(problem.w.kernel, 4);
  const int32_t unit = storable_neighbours(problem, pointers.y);
  if (unit < columns) throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  params.vector = columns;
  while (problem.w.kernel == columns && 2 * params.vector <= unit && params.vector * element < 16 &&
         problem.w.out % (2 * params.vector) == 0) {
    params.vector *= 2;
  }
  launch_kernel(patch_sm90a::kKernels[index](), grid_of(plan), stream, params);
}

}  // namespace convt
