// Launches packing, the correlate kernel and the reduction of its slabs.
#include "reduce/launch.h"

#include <algorithm>
#include <stdexcept>

#include "correlate_sm90a/instances.h"
#include "correlate_sm90a/params.h"
#include "launch/launcher.h"
#include "launch/operands.h"
#include "plan/cost.h"

namespace convt {
namespace {

// Boxes [row][channel][column] in NCHW, or [row][column][channel] in channels_last.
TensorBox boxes_of(DataType dtype, const void* data, const CorrelateOperand& of, CorrelateForm form, int64_t images) {
  const auto row = static_cast<int32_t>(128 / element_bytes(dtype));
  const int64_t* stride = of.stride;
  if (form == CorrelateForm::kPixels) {
    return {data, {of.channels, of.columns, of.rows, images}, {stride[3], stride[2], stride[0]}, {row, 1, 1, 1}};
  }
  return {data, {of.columns, of.channels, of.rows, images}, {stride[1], stride[2], stride[0]}, {row, 1, 1, 1}};
}

CUtensorMap map_x(const ConvTProblem& problem, const CorrelateInstance& instance, const CorrelateLayout& layout,
                  const CorrelateOperand& of, const void* data) {
  TensorBox x = boxes_of(problem.dtype, data, of, instance.form, problem.batch);
  x.box[1] = instance.form == CorrelateForm::kPixels ? layout.columns : instance.columns;
  x.box[2] = layout.rows;
  x.swizzle_bytes = 128;
  x.rounded = problem.dtype == DataType::kFloat32;
  return make_tensor_map(problem.dtype, x);
}

CUtensorMap map_gy(const ConvTProblem& problem, const CorrelateInstance& instance, const CorrelateLayout& layout,
                   const CorrelateOperand& of, const void* data, bool rounded) {
  TensorBox gy = boxes_of(problem.dtype, data, of, instance.form, problem.batch);
  gy.box[2] = layout.gy_rows;
  gy.step[2] = layout.gy_row_step;
  if (instance.form == CorrelateForm::kPixels) {
    gy.box[0] = layout.gy_pixel_bytes / static_cast<int32_t>(element_bytes(problem.dtype));
    gy.box[1] = layout.gy_box_columns;
    gy.step[1] = problem.w.stride;
  } else {
    gy.box[0] = layout.gy_box_columns;
    gy.box[1] = layout.co_rows * layout.co_parts;
    if (layout.flat) {
      gy.sizes[0] *= gy.sizes[2];
      gy.sizes[2] = gy.box[2] = gy.step[2] = 1;
    }
  }
  gy.swizzle_bytes = instance.form == CorrelateForm::kRows     ? 0
                     : instance.form == CorrelateForm::kPixels ? layout.gy_pixel_bytes
                                                               : 128;
  gy.rounded = rounded;
  return make_tensor_map(problem.dtype, gy);
}

// Parameters to recompute NaN results. Zeros outside images and past the last column of a strip are multiplied by
// elements of the other operand, and 0 * Inf is NaN.
reduce::WeightTerms terms_of(const JoinedProblem& problem, const CorrelateLayout& layout, const Pointers& pointers) {
  reduce::WeightTerms terms{};
  terms.x = pointers.x;
  terms.gy = pointers.y;
  std::copy_n(problem.x_stride, 4, terms.x_stride);
  std::copy_n(problem.y_stride, 4, terms.gy_stride);
  terms.batch = problem.batch;
  terms.group_ci = layout.group_ci;
  terms.group_co = layout.group_co;
  terms.h = problem.h;
  terms.w = problem.w;
  terms.planes = problem.planes;
  return terms;
}

// Returns the images of a launch, starting at `first`: in the tensor, or packed into the workspace.
const void* operand_of(const ConvTProblem& problem, const Plan& plan, CorrelateForm form, bool is_x,
                       const CorrelateOperand& of, const void* tensor, int64_t first, void* packed,
                       cudaStream_t stream) {
  const int64_t* stride = is_x ? problem.x_stride : problem.y_stride;
  const void* images = static_cast<const char*>(tensor) + first * stride[0] * element_bytes(problem.dtype);
  if (of.packed_bytes == 0) return images;
  const int64_t channels = is_x ? problem.c_in : problem.c_out;
  if (form == CorrelateForm::kPixels) {
    const Pixels pixels = packed_pixels(problem, pixels_of(problem, channels, of.rows, of.columns, stride));
    launch_pack_pixels(problem, plan, pixels, stride, problem.batch, images, packed, stream, false);
  } else {
    launch_pack_rows(problem, plan, channels, of.rows, of.columns, stride, problem.batch, images, packed, stream);
  }
  return packed;
}

}  // namespace

void launch_correlate(const ConvTProblem& asked, const Plan& plan, const CorrelateTile& tile, const Pointers& pointers,
                      cudaStream_t stream) {
  JoinedProblem problem;
  if (!join_planes(asked, &problem)) throw std::runtime_error("convt_ext: planes cannot be joined");
  const CorrelateInstance& instance = instance_of(kCorrelateInstances, tile.instance, problem, plan);
  CorrelateLayout layout;
  check_layout(make_correlate_layout(problem, tile, &layout), layout, plan);
  check_workspace(plan, pointers.workspace);
  const CorrelateOperand x = correlate_operand(problem, instance.form, true, tile.packs_x);
  const CorrelateOperand gy = correlate_operand(problem, instance.form, false, tile.packs_gy);
  auto* packed_x = static_cast<char*>(pointers.workspace);
  char* packed_gy = packed_x + whole_workspace(x.packed_bytes * tile.images);
  char* slabs = packed_gy + whole_workspace(gy.packed_bytes * tile.images);
  char* bias_slabs = pointers.grad_bias == nullptr ? nullptr : slabs + slab_bytes(problem, layout.chunks);
  // The gradient of the bias sums unrounded elements, so warps round after the copies.
  const bool rounded = problem.dtype == DataType::kFloat32 && bias_slabs == nullptr;
  const void* kernel = instance.form == CorrelateForm::kPixels ? correlate_sm90a::pixels_kernel_of(tile.instance)
                                                               : correlate_sm90a::rows_kernel_of(tile.instance);
  for (int64_t first = 0; first < problem.batch; first += tile.images) {
    JoinedProblem part = problem;
    part.batch = std::min<int64_t>(tile.images, problem.batch - first);
    CorrelateTile of_part = tile;
    of_part.images = static_cast<int32_t>(part.batch);
    correlate_sm90a::Params params{};
    make_correlate_layout(part, of_part, &params.layout);  // legal, like the layout of the whole batch
    params.x = map_x(part, instance, params.layout, x,
                     operand_of(part, plan, instance.form, true, x, pointers.x, first, packed_x, stream));
    params.gy = map_gy(part, instance, params.layout, gy,
                       operand_of(part, plan, instance.form, false, gy, pointers.y, first, packed_gy, stream), rounded);
    params.slabs = reinterpret_cast<float*>(slabs);
    params.bias_slabs = reinterpret_cast<float*>(bias_slabs);
    params.adds = first > 0;
    Grid grid = grid_of(plan);
    grid.blocks = params.layout.num_blocks;
    launch_kernel(kernel, grid, stream, params);
  }
  // Sizes and strides in the order of the slab's dimensions.
  const int64_t* to = problem.w_stride;
  const int64_t size[4] = {problem.h.kernel, problem.w.kernel, layout.channels, layout.group_co};
  const int64_t stride[4] = {to[2], to[3], to[0], to[1]};
  launch_add_slabs(problem.dtype, slabs, layout.chunks, size, stride, pointers.w, stream,
                   terms_of(problem, layout, pointers));
  if (bias_slabs == nullptr) return;
  int64_t rows = int64_t{layout.chunks} * layout.bias_rows;
  for (const CorrelateRest& rest : correlate_rests(problem)) {
    const void* begin = static_cast<const char*>(pointers.y) + rest.begins * element_bytes(problem.dtype);
    rows += launch_channel_slabs(rest.sum, begin, bias_slabs + rows * problem.c_out * 4, stream);
  }
  launch_add_bias(problem.dtype, problem.c_out, bias_slabs, rows, pointers.grad_bias, stream);
}

}  // namespace convt
