#include "reduce/launch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "depthwise/channels_last_layout.h"
#include "depthwise/instances.h"
#include "depthwise/layout.h"
#include "launch/launcher.h"
#include "launch/operands.h"

namespace convt {
namespace {

void add_slabs(const ConvTProblem& problem, int64_t num_slabs, const Pointers& pointers, cudaStream_t stream) {
  const int64_t size[4] = {problem.c_in, 1, problem.h.kernel, problem.w.kernel};
  launch_add_slabs(problem.dtype, pointers.workspace, num_slabs, size, problem.w_stride, pointers.w, stream);
}

}  // namespace

void launch_thin_depthwise(const ConvTProblem& problem, const Plan& plan, const ThinDepthwiseTile& tile,
                           const Pointers& pointers, cudaStream_t stream) {
  const ThinDepthwiseInstance& instance = instance_of(kThinDepthwiseInstances, tile.instance, problem, plan);
  depthwise::DepthwiseParams params{};
  check_layout(make_thin_depthwise_layout(problem, instance, tile.rows, &params), params, plan);
  const bool of_weight = problem.direction == Direction::kGradWeight;
  params.x = pointers.x;
  params.y = pointers.y;
  params.weight = of_weight ? nullptr : pointers.w;
  params.bias = pointers.bias;
  params.slabs = of_weight ? static_cast<float*>(pointers.workspace) : nullptr;
  std::copy_n(problem.x_stride, 4, params.x_stride);
  std::copy_n(problem.y_stride, 4, params.y_stride);
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  const int32_t columns = depthwise_columns(problem.dtype, problem.direction);
  params.x_vectors = has_vectors(pointers.x, problem.x_stride, 3, columns / instance.stride, problem.dtype);
  params.y_vectors = has_vectors(pointers.y, problem.y_stride, 3, columns, problem.dtype);
  launch_kernel(depthwise::kernel_of(tile.instance), grid_of(plan), stream, params);
  if (of_weight) add_slabs(problem, problem.batch * params.chunks * params.strips, pointers, stream);
}

void launch_thin_channels_last(const ConvTProblem& problem, const Plan& plan, const ThinChannelsLastTile& tile,
                               const Pointers& pointers, cudaStream_t stream) {
  const ThinChannelsLastInstance& instance = instance_of(kThinChannelsLastInstances, tile.instance, problem, plan);
  depthwise::ChannelsLastParams params{};
  check_layout(make_thin_channels_last_layout(problem, instance, tile.rows, tile.vector, &params), params, plan);
  // Operands may be misaligned and have any strides. Without vector access a thread processes one channel.
  Plan launched = plan;
  if (tile.vector > 1 && (!has_vectors(pointers.x, problem.x_stride, 1, tile.vector, problem.dtype) ||
                          !has_vectors(pointers.y, problem.y_stride, 1, tile.vector, problem.dtype))) {
    if (!make_thin_channels_last_layout(problem, instance, tile.rows, 1, &params)) {
      throw std::runtime_error(std::string("convt_ext: ") + plan.kernel + " has too many CTAs for these strides");
    }
    launched.shared_bytes = params.shared_bytes;
    launched.num_blocks = params.num_blocks;
  }
  const void* kernel = depthwise::channels_last_kernel_of(tile.instance);
  if (problem.direction == Direction::kGradWeight) {
    params.source = pointers.y;
    params.pixels = pointers.x;
    params.slabs = static_cast<float*>(pointers.workspace);
    std::copy_n(problem.y_stride, 4, params.source_stride);
    std::copy_n(problem.x_stride, 4, params.pixel_stride);
    launch_kernel(kernel, grid_of(launched), stream, params);
    return add_slabs(problem, problem.batch * params.chunks * params.column_blocks, pointers, stream);
  }
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.result = forward ? pointers.y : pointers.x;
  params.weight = pointers.w;
  params.bias = pointers.bias;
  std::copy_n(forward ? problem.x_stride : problem.y_stride, 4, params.source_stride);
  std::copy_n(forward ? problem.y_stride : problem.x_stride, 4, params.result_stride);
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  launch_kernel(kernel, grid_of(launched), stream, params);
}

}  // namespace convt
