#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "mma_sm90a/grad_weight_layout.h"
#include "mma_sm90a/grad_weight_params.h"
#include "mma_sm90a/instances.h"
#include "plan/kernel_table.h"
#include "reduce/launch.h"
#include "thin/weight_params.h"

namespace convt {

CONVT_KERNEL_TABLE(mma_sm90a, CONVT_MMA_GRAD_WEIGHT_INSTANCES, const void*)

namespace {

mma_sm90a::PixelCopies pixel_copies(const void* elements, const int64_t (&stride)[4], int64_t group, int64_t block,
                                    DataType dtype) {
  int64_t bytes = pixel_vector_bytes(stride, group, block, dtype);
  while (!is_aligned(elements, bytes)) bytes /= 2;
  const auto vectors = static_cast<int32_t>(block * element_bytes(dtype) / bytes);
  return {Divisor::of(vectors), 32 / vectors, 32 % vectors, static_cast<int32_t>(bytes)};
}

// Rows of grad_output begin and end on vectors, so that copies of whole vectors write nothing beside them.
bool has_rows_of_vectors(const ConvTProblem& problem, bool channels_inner, const void* gy) {
  const int64_t* stride = problem.y_stride;
  auto on_vectors = [&](int64_t elems) { return elems * element_bytes(problem.dtype) % 16 == 0; };
  return is_aligned(gy, 16) && on_vectors(stride[0]) && on_vectors(stride[2]) &&
         on_vectors(problem.w.out * stride[3]) && (channels_inner || problem.c_out == 1 || on_vectors(stride[1]));
}

}  // namespace

void launch_mma_grad_weight(const ConvTProblem& problem, const Plan& plan, const MmaGradWeightTile& tile,
                            const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumMmaGradWeightInstances || kMmaGradWeightInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no mma kernel instance number " + std::to_string(index) + " computes " +
                             name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  mma_sm90a::GradWeightParams params{};
  const bool legal = make_mma_grad_weight_layout(problem, tile, &params.layout);
  if (!legal || params.layout.threads != plan.threads || params.layout.shared_bytes != plan.shared_bytes ||
      params.layout.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  fill_thin_weight_params(problem, params.layout, params.layout.pitches, params.layout.loaders, pointers, &params);
  const MmaGradWeightInstance& instance = kMmaGradWeightInstances[index];
  const bool channels_inner = instance.operands != WeightOperands::kColumns;
  params.taps_w = params.layout.block_kw;
  params.zero_borders =
      (channels_inner && !params.layout.gy_runs) || has_rows_of_vectors(problem, channels_inner, pointers.y);
  params.by_step_columns = Divisor::of(mma_grad_weight_step(instance, params.layout) * problem.w.stride);
  if (channels_inner) {
    params.x_copies = pixel_copies(pointers.x, problem.x_stride, params.group_ci, params.block_ci, problem.dtype);
    params.gy_copies = pixel_copies(pointers.y, problem.y_stride, params.group_co, params.block_co, problem.dtype);
    params.by_block_kw = Divisor::of(params.layout.columns_apart ? params.layout.block_kw : 1);
  }
  launch_kernel(mma_sm90a::kKernels[index](), grid_of(plan), stream, params);
  const int64_t size[4] = {params.group_co, problem.h.kernel, problem.w.kernel, problem.c_in};
  const int64_t stride[4] = {problem.w_stride[1], problem.w_stride[2], problem.w_stride[3], problem.w_stride[0]};
  launch_add_slabs(problem.dtype, pointers.workspace, params.chunks, size, stride, pointers.w, stream);
}

}  // namespace convt
