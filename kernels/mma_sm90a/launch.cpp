// Launches of the mma engine: kernel parameters in addition to the layouts.
#include "reduce/launch.h"

#include <stdexcept>

#include "launch/launcher.h"
#include "mma_sm90a/grad_input_layout.h"
#include "mma_sm90a/grad_weight_layout.h"
#include "mma_sm90a/instances.h"
#include "mma_sm90a/rows_layout.h"
#include "tiling/strips.h"

namespace convt {
namespace {

void check_result(const void* result) {
  if (!is_aligned(result, 16)) {
    throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  }
}

void set_tensors(const Pointers& pointers, mma_sm90a::Params* params) {
  params->source = pointers.x;
  params->weight = pointers.w;
  params->bias = pointers.bias;
  params->result = pointers.y;
  check_result(params->result);
}

mma_sm90a::PixelCopies pixel_copies(const void* elements, const int64_t (&stride)[4], int64_t group, int64_t block,
                                    DataType dtype) {
  int64_t bytes = pixel_vector_bytes(stride, group, block, dtype);
  while (!is_aligned(elements, bytes)) bytes /= 2;
  const auto vectors = static_cast<int32_t>(block * element_bytes(dtype) / bytes);
  return {FastDivmod::of(vectors), 32 / vectors, 32 % vectors, static_cast<int32_t>(bytes)};
}

// Whether rows of grad_output start and end on vectors, so that copies of whole vectors stay within their row.
bool has_rows_of_vectors(const ConvTProblem& problem, bool channels_inner, const void* gy) {
  const int64_t* stride = problem.y_stride;
  auto on_vectors = [&](int64_t elems) { return elems * element_bytes(problem.dtype) % 16 == 0; };
  return is_aligned(gy, 16) && on_vectors(stride[0]) && on_vectors(stride[2]) &&
         on_vectors(problem.w.out * stride[3]) && (channels_inner || problem.c_out == 1 || on_vectors(stride[1]));
}

}  // namespace

void launch_mma_rows(const ConvTProblem& problem, const Plan& plan, const MmaRowsTile& tile, const Pointers& pointers,
                     cudaStream_t stream) {
  instance_of(kMmaRowsInstances, tile.instance, problem, plan);
  mma_sm90a::Params params{};
  check_layout(make_mma_rows_layout(problem, tile, &params), params, plan);
  set_tensors(pointers, &params);
  // If the source is not aligned to a vector, elements are loaded one by one.
  if (!is_aligned(params.source, 4 * element_bytes(problem.dtype))) params.vector = 1;
  launch_kernel(mma_sm90a::rows_kernel_of(tile.instance), grid_of(plan), stream, params);
}

void launch_mma_grad_input(const ConvTProblem& problem, const Plan& plan, const MmaGradInputTile& tile,
                           const Pointers& pointers, cudaStream_t stream) {
  instance_of(kMmaGradInputInstances, tile.instance, problem, plan);
  mma_sm90a::GradInputParams params{};
  check_layout(make_mma_grad_input_layout(problem, tile, &params), params, plan);
  const int64_t last = (problem.batch - 1) * problem.y_stride[0] + (problem.c_out - 1) * problem.y_stride[1] +
                       (problem.h.out - 1) * problem.y_stride[2] + (problem.w.out - 1) * problem.y_stride[3];
  params.source = pointers.y;
  params.source_end = static_cast<const unsigned char*>(pointers.y) + (last + 1) * element_bytes(problem.dtype);
  params.weight = pointers.w;
  params.raw_weights = params.raw_weights && is_aligned(params.weight, 16);
  params.result = pointers.x;
  check_result(params.result);
  launch_kernel(mma_sm90a::grad_input_kernel_of(tile.instance), grid_of(plan), stream, params);
}

void launch_mma_grad_weight(const ConvTProblem& problem, const Plan& plan, const MmaGradWeightTile& tile,
                            const Pointers& pointers, cudaStream_t stream) {
  const MmaGradWeightInstance& instance = instance_of(kMmaGradWeightInstances, tile.instance, problem, plan);
  mma_sm90a::GradWeightParams params{};
  MmaGradWeightLayout& layout = params.layout;
  check_layout(make_mma_grad_weight_layout(problem, tile, &layout), layout, plan);
  fill_strip_params(problem, layout, layout.pitches, layout.loaders, pointers, &params);
  const bool channels_inner = instance.operands == WeightOperands::kPixels;
  params.taps_w = layout.block_kw;
  params.zero_borders = (channels_inner && !layout.gy_runs) || has_rows_of_vectors(problem, channels_inner, pointers.y);
  params.by_step_columns = FastDivmod::of(2 * layout.next_pixels * problem.w.stride);
  if (channels_inner) {
    params.x_copies = pixel_copies(pointers.x, problem.x_stride, params.group_ci, params.block_ci, problem.dtype);
    params.gy_copies = pixel_copies(pointers.y, problem.y_stride, params.group_co, params.block_co, problem.dtype);
    params.by_block_kw = FastDivmod::of(layout.columns_apart ? layout.block_kw : 1);
  }
  launch_kernel(mma_sm90a::grad_weight_kernel_of(tile.instance), grid_of(plan), stream, params);
  const int64_t size[4] = {params.group_co, problem.h.kernel, problem.w.kernel, problem.c_in};
  const int64_t stride[4] = {problem.w_stride[1], problem.w_stride[2], problem.w_stride[3], problem.w_stride[0]};
  launch_add_slabs(problem.dtype, pointers.workspace, params.chunks, size, stride, pointers.w, stream);
}

}  // namespace convt
