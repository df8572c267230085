#include <algorithm>
#include <stdexcept>
#include <string>

#include "depthwise/channels_last_layout.h"
#include "depthwise/channels_last_params.h"
#include "depthwise/instances.h"
#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"
#include "reduce/launch.h"

namespace convt {

CONVT_KERNEL_TABLE(depthwise, CONVT_THIN_CHANNELS_LAST_INSTANCES, const void*)

namespace {

void launch_grad_weight(const ConvTProblem& problem, const Plan& plan, const ThinChannelsLastTile& tile,
                        const Pointers& pointers, depthwise::ChannelsLastParams& params, cudaStream_t stream) {
  params.source = pointers.y;
  params.pixels = pointers.x;
  params.slabs = static_cast<float*>(pointers.workspace);
  std::copy_n(problem.y_stride, 4, params.source_stride);
  std::copy_n(problem.x_stride, 4, params.pixel_stride);
  launch_kernel(depthwise::kKernels[tile.instance](), grid_of(plan), stream, params);
  const int64_t size[4] = {problem.c_in, 1, problem.h.kernel, problem.w.kernel};
  launch_add_slabs(problem.dtype, pointers.workspace, problem.batch * params.chunks * params.column_blocks, size,
                   problem.w_stride, pointers.w, stream);
}

}  // namespace

void launch_thin_channels_last(const ConvTProblem& problem, const Plan& plan, const ThinChannelsLastTile& tile,
                               const Pointers& pointers, cudaStream_t stream) {
  if (tile.instance < 0 || tile.instance >= kNumThinChannelsLastInstances) {
    throw std::runtime_error("convt_ext: no channels_last kernel instance number " + std::to_string(tile.instance));
  }
  const ThinChannelsLastInstance& instance = kThinChannelsLastInstances[tile.instance];
  depthwise::ChannelsLastParams params{};
  if (!make_thin_channels_last_layout(problem, instance, tile.rows, tile.vector, &params) ||
      params.shared_bytes != plan.shared_bytes || params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  // Operands may begin anywhere and have any strides; then every channel is a thread's.
  Plan launched = plan;
  if (tile.vector > 1 && (!has_vectors(pointers.x, problem.x_stride, 1, tile.vector, problem.dtype) ||
                          !has_vectors(pointers.y, problem.y_stride, 1, tile.vector, problem.dtype))) {
    if (!make_thin_channels_last_layout(problem, instance, tile.rows, 1, &params)) {
      throw std::runtime_error(std::string("convt_ext: ") + plan.kernel + " has too many CTAs for these strides");
    }
    launched.shared_bytes = params.shared_bytes;
    launched.num_blocks = params.num_blocks;
  }
  if (problem.direction == Direction::kGradWeight) {
    return launch_grad_weight(problem, launched, tile, pointers, params, stream);
  }
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.result = forward ? pointers.y : pointers.x;
  params.weight = pointers.w;
  params.bias = pointers.bias;
  std::copy_n(forward ? problem.x_stride : problem.y_stride, 4, params.source_stride);
  std::copy_n(forward ? problem.y_stride : problem.x_stride, 4, params.result_stride);
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  launch_kernel(depthwise::kKernels[tile.instance](), grid_of(launched), stream, params);
}

}  // namespace convt
