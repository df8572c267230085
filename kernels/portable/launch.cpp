// Launches of the portable engine: packing, the convolution, and the sum of slabs; repeated for each part of a large
// batch.
#include "reduce/launch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/launcher.h"
#include "launch/operands.h"
#include "portable/grad_weight_layout.h"
#include "portable/instances.h"
#include "portable/layout.h"
#include "problem/adjoint.h"

namespace convt {
namespace {

const void* image_of(const void* tensor, int64_t image, int64_t image_stride, DataType dtype) {
  return static_cast<const unsigned char*>(tensor) + image * image_stride * element_bytes(dtype);
}

// `problem`: for a gradient, the adjoint problem.
void launch_pack_weights(const ConvTProblem& problem, const Plan& plan, const PortableLayout& layout,
                         int64_t group_stride, const Pointers& pointers, cudaStream_t stream) {
  portable::PackWeightsParams params{};
  params.weight = pointers.w;
  params.packed = pointers.packed;
  std::copy_n(problem.w_stride, 4, params.stride);
  params.group_stride = group_stride;
  params.h = layout.h;
  params.w = layout.w;
  params.tap_step_h = layout.h.stride / greatest_common_divisor(layout.h.stride, layout.h.dilation);
  params.tap_step_w = layout.w.stride / greatest_common_divisor(layout.w.stride, layout.w.dilation);
  params.phases_h = layout.phases_h;
  params.phases_w = layout.phases_w;
  params.k_channels = layout.source.channels;
  params.n_channels = layout.n_channels;
  params.channel_vectors = layout.source.vectors;
  params.slot_vectors = layout.slot_vectors;
  const auto [to_k, to_n, to_row, to_tap] = params.stride;
  params.k_outer = to_k >= to_n;
  params.taps_inner = to_tap < std::min(to_k, to_n);
  const int32_t taps = layout.h.kernel * layout.w.kernel, of_tile = std::min(taps, kPackTilePixels);
  const int32_t n = std::min(layout.n_channels, kPackTilePixels / of_tile);
  params.by_n = FastDivmod::of(n);
  params.by_taps = FastDivmod::of(of_tile);
  params.by_k_tiles = FastDivmod::of(ceil_div(layout.source.vectors, kPackTileVectors));
  params.by_n_tiles = FastDivmod::of(ceil_div(layout.n_channels, n));
  params.by_tap_tiles = FastDivmod::of(ceil_div(taps, of_tile));
  params.by_kernel_w = FastDivmod::of(layout.w.kernel);
  const int64_t blocks = problem.groups * params.by_k_tiles.value * params.by_n_tiles.value * params.by_tap_tiles.value;
  launch_kernel(portable::pack_weights(problem.dtype),
                Grid{plan.kernel, blocks, dim3(kPackTileThreads), kPackTileBytes}, stream, params);
}

}  // namespace

void launch_portable(const ConvTProblem& asked, const Plan& plan, const PortableTile& tile, const Pointers& pointers,
                     cudaStream_t stream) {
  const bool forward = asked.direction == Direction::kForward;
  const ConvTProblem problem = forward ? asked : adjoint_problem(asked);
  portable::Params params{};
  check_layout(make_portable_layout(asked, tile, &params), params, plan);
  check_workspace(plan, pointers.workspace);
  if (!pointers.is_packed && params.slot_vectors > 0) {
    launch_pack_weights(problem, plan, params, asked.c_in / asked.groups * asked.w_stride[0], pointers, stream);
  }
  params.g_weights = pointers.packed;
  params.bias = forward ? pointers.bias : nullptr;
  params.steps = steps_of(pointers);
  params.rounds_source = !tile.packs_source;
  const void* source = forward ? pointers.x : pointers.y;
  void* result = forward ? pointers.y : pointers.x;
  auto* packed_source = static_cast<unsigned char*>(pointers.workspace);
  const bool splits = params.splits > 1;
  params.slabs = splits ? reinterpret_cast<float*>(packed_source + params.source_bytes) : nullptr;
  for (int64_t image = 0; image < problem.batch; image += params.images) {
    const int64_t images = std::min<int64_t>(params.images, problem.batch - image);
    params.g_source = image_of(source, image, problem.x_stride[0], problem.dtype);
    if (tile.packs_source) {
      launch_pack_pixels(problem, plan, params.source, problem.x_stride, images, params.g_source, packed_source,
                         stream);
      params.g_source = packed_source;
    }
    params.num_rows = static_cast<int32_t>(images * params.image_rows);
    params.first_result = image * problem.y_stride[0];
    params.result = result;
    params.adds_slabs = false;
    launch_kernel(portable::kernel_of(tile.instance), grid_of(plan), stream, params);
    if (!splits) continue;
    params.adds_slabs = true;
    Grid grid = grid_of(plan);
    grid.blocks = params.by_tiles.value;
    launch_kernel(portable::kernel_of(tile.instance), grid, stream, params);
  }
}

void launch_portable_grad_weight(const ConvTProblem& problem, const Plan& plan, const PortableGradWeightTile& tile,
                                 const Pointers& pointers, cudaStream_t stream) {
  portable::GradWeightParams params{};
  check_layout(make_portable_grad_weight_layout(problem, tile, &params), params, plan);
  check_workspace(plan, pointers.workspace);
  auto* packed_x = static_cast<unsigned char*>(pointers.workspace) + params.slab_bytes;
  unsigned char* packed_gy = packed_x + params.x_bytes;
  params.slabs = static_cast<float*>(pointers.workspace);
  params.rounds_x = !tile.packs_x;
  params.rounds_gy = !tile.packs_gy;
  for (int64_t image = 0; image < problem.batch; image += params.images) {
    const int64_t images = std::min<int64_t>(params.images, problem.batch - image);
    params.g_x = image_of(pointers.x, image, problem.x_stride[0], problem.dtype);
    params.g_gy = image_of(pointers.y, image, problem.y_stride[0], problem.dtype);
    if (tile.packs_x) {
      launch_pack_pixels(problem, plan, params.x, problem.x_stride, images, params.g_x, packed_x, stream);
      params.g_x = packed_x;
    }
    if (tile.packs_gy) {
      launch_pack_pixels(problem, plan, params.gy, problem.y_stride, images, params.g_gy, packed_gy, stream);
      params.g_gy = packed_gy;
    }
    params.num_pixels = static_cast<int32_t>(images * params.image_pixels);
    launch_kernel(portable::grad_weight_kernel_of(tile.instance), grid_of(plan), stream, params);
    params.slabs += tile.chunks * params.slab_elements;
  }
  const int64_t size[4] = {problem.c_out / problem.groups, problem.h.kernel, problem.w.kernel, problem.c_in};
  const int64_t stride[4] = {problem.w_stride[1], problem.w_stride[2], problem.w_stride[3], problem.w_stride[0]};
  launch_add_slabs(problem.dtype, pointers.workspace, params.num_slabs, size, stride, pointers.w, stream);
}

}  // namespace convt
