#include "reduce/launch.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

#include "launch/launcher.h"
#include "thin/grad_input_layout.h"
#include "thin/grad_weight_layout.h"
#include "thin/instances.h"
#include "thin/layout.h"
#include "thin/outer_weight_layout.h"
#include "tiling/strips.h"

namespace convt {
namespace {

// Columns that a thread reads at once: neighbouring taps whose offset within a vector is the same for all positions.
int32_t vector_columns(const thin::GradInputParams& params) {
  if (params.w.dilation != 1) return 1;
  for (const int32_t vector : {4, 2}) {
    if (params.w.stride % vector == 0 && params.pitches.position % vector == 0 && params.w.kernel >= vector) {
      return vector;
    }
  }
  return 1;
}

// Elements of the widest copy that `begin` and all distances are multiples of.
int32_t widest_copy(const void* begin, std::initializer_list<int64_t> distances) {
  for (const int32_t elems : {4, 2}) {
    bool whole = is_aligned(begin, 4 * elems);
    for (const int64_t distance : distances) whole = whole && distance % elems == 0;
    if (whole) return elems;
  }
  return 1;
}

}  // namespace

void launch_thin(const ConvTProblem& problem, const Plan& plan, const ThinTile& tile, const Pointers& pointers,
                 cudaStream_t stream) {
  const ThinInstance& instance = instance_of(kThinInstances, tile.instance, problem, plan);
  thin::Params params{};
  check_layout(make_thin_layout(problem, tile, instance.outputs, instance.positions, &params), params, plan);
  params.source = pointers.x;
  params.weight = pointers.w;
  params.bias = pointers.bias;
  params.result = pointers.y;
  // An operand may be misaligned. Its columns are then copied one by one to the same offsets.
  if (params.load_mode == ThinLoad::kVectors && !is_aligned(params.source, params.vector_bytes)) {
    params.load_mode = ThinLoad::kElements;
    params.vector_bytes = static_cast<int32_t>(element_bytes(problem.dtype));
  }
  if (!is_aligned(params.result, 16)) {
    throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  }
  launch_kernel(thin::kernel_of(tile.instance), grid_of(plan), stream, params);
}

void launch_thin_grad_input(const ConvTProblem& problem, const Plan& plan, const ThinGradInputTile& tile,
                            const Pointers& pointers, cudaStream_t stream) {
  instance_of(kThinGradInputInstances, tile.instance, problem, plan);
  thin::GradInputParams params{};
  check_layout(make_thin_grad_input_layout(problem, tile, &params), params, plan);
  params.gy = pointers.y;
  params.weight = pointers.w;
  params.gx = pointers.x;
  std::copy_n(problem.y_stride, 4, params.gy_stride);
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  std::copy_n(problem.x_stride, 4, params.gx_stride);
  params.pitches = make_slot_pitches(params, problem, params.tile_h, params.h.kernel);
  params.by_slots = SmallDivmod::of(params.slots);
  params.by_kernel_h = SmallDivmod::of(params.h.kernel);
  params.by_tiles_w = SmallDivmod::of(params.tiles_w);
  params.by_tiles_h = SmallDivmod::of(params.tiles_h);
  params.vector = vector_columns(params);
  params.copy_vectors = problem.y_stride[3] == 1;
  // The threads per row are a power of two, at most the vectors of a row.
  const int32_t copies = params.columns / (params.copy_vectors ? vector_elements(problem.dtype) : 1);
  while (params.load_lanes_log2 < 5 && (2 << params.load_lanes_log2) <= copies) ++params.load_lanes_log2;
  launch_kernel(thin::grad_input_kernel_of(tile.instance), grid_of(plan), stream, params);
}

void launch_thin_grad_weight(const ConvTProblem& problem, const Plan& plan, const ThinGradWeightTile& tile,
                             const Pointers& pointers, cudaStream_t stream) {
  instance_of(kThinGradWeightInstances, tile.instance, problem, plan);
  thin::GradWeightParams params{};
  check_layout(make_thin_grad_weight_layout(problem, tile, &params), params, plan);
  // A few warps copy a stage: six of twelve are the fastest, by a little.
  int32_t loaders = params.threads / 32;
  for (const int32_t count : {2, 3, 4, 6}) {
    if (params.threads / 32 % count == 0) loaders = count;
  }
  fill_strip_params(problem, params, make_strip_pitches(params, problem), loaders, pointers, &params);
  while (params.unit_rows > 1 && (1 << params.strip_log2) < params.strip) ++params.strip_log2;
  params.by_columns_step = FastDivmod::of(params.unit_rows > 1 ? 1 : 32 * problem.w.stride);
  launch_kernel(thin::grad_weight_kernel_of(tile.instance), grid_of(plan), stream, params);
  const int64_t size[4] = {problem.c_in, params.group_co, problem.h.kernel, problem.w.kernel};
  launch_add_slabs(problem.dtype, pointers.workspace, params.chunks, size, problem.w_stride, pointers.w, stream);
}

void launch_thin_outer_weight(const ConvTProblem& problem, const Plan& plan, const ThinOuterWeightTile& tile,
                              const Pointers& pointers, cudaStream_t stream) {
  const ThinOuterWeightInstance& instance = instance_of(kThinOuterWeightInstances, tile.instance, problem, plan);
  thin::OuterWeightParams params{};
  check_layout(make_thin_outer_weight_layout(problem, tile, &params), params, plan);
  params.x = static_cast<const float*>(pointers.x);
  params.gy = static_cast<const float*>(pointers.y);
  params.slabs = static_cast<float*>(pointers.workspace);
  params.x_image = problem.x_stride[0];
  params.x_row = problem.x_stride[2];
  params.gy_image = problem.y_stride[0];
  params.gy_row = problem.y_stride[2];
  const int32_t block = params.block_vectors * instance.width;
  params.x_copy = widest_copy(pointers.x, {problem.c_in, params.x_image, params.x_row});
  params.gy_copy =
      widest_copy(pointers.y, {params.gy_image, params.gy_row, problem.w.padding * problem.c_out,
                               problem.w.out * problem.c_out, int64_t{params.tile_w} * problem.w.stride * problem.c_out,
                               params.vector_tiles > 1 ? block : 0, params.w.dilation > 1 ? problem.c_out : 0});
  params.by_x_vectors = FastDivmod::of(params.block_ci / params.x_copy);
  launch_kernel(thin::outer_weight_kernel_of(tile.instance), grid_of(plan), stream, params);
  const int64_t* w_stride = problem.w_stride;
  const int64_t size[4] = {problem.c_in, problem.h.kernel, problem.w.kernel, problem.c_out};
  const int64_t stride[4] = {w_stride[0], w_stride[2], w_stride[3], w_stride[1]};
  launch_add_slabs(problem.dtype, pointers.workspace, params.chunks, size, stride, pointers.w, stream);
}

}  // namespace convt
