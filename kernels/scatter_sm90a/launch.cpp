#include <algorithm>

#include "launch/launcher.h"
#include "launch/operands.h"
#include "scatter_sm90a/instances.h"
#include "scatter_sm90a/params.h"

namespace convt {
namespace {

// The source as [image][channel][row][column], columns innermost, or in channels_last [image][row][column][channel].
CUtensorMap map_source(const ConvTProblem& problem, const ScatterLayout& layout, bool channels_last,
                       const void* source) {
  const int64_t* stride = problem.x_stride;
  if (channels_last) {
    TensorBox box = {
        source,
        {problem.c_in, problem.w.in, problem.h.in, problem.batch},
        {stride[3], stride[2], stride[0]},
        {layout.box_channels, layout.pitch, 1, layout.strips},
    };
    box.rounded = problem.precision == Precision::kTf32;
    box.swizzle_bytes = kScatterRowBytes;
    return make_tensor_map(problem.dtype, box);
  }
  const TensorBox box = {
      source,
      {problem.w.in, problem.h.in, problem.c_in, problem.batch},
      {stride[2], stride[1], stride[0]},
      {layout.pitch, 1, layout.box_channels, layout.strips},
  };
  return make_tensor_map(problem.dtype, box);
}

}  // namespace

void launch_scatter(const ConvTProblem& problem, const Plan& plan, const ScatterTile& tile, const Pointers& pointers,
                    cudaStream_t stream) {
  const ScatterInstance& instance = instance_of(kScatterInstances, tile.instance, problem, plan);
  scatter_sm90a::Params params{};
  check_layout(make_scatter_layout(problem, tile, &params), params, plan);
  params.source = map_source(problem, params, instance.channels_last, pointers.x);
  params.weight = pointers.w;
  params.bias = pointers.bias;
  params.result = pointers.y;
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  std::copy_n(problem.y_stride, 4, params.result_stride);
  launch_kernel(scatter_sm90a::kernel_of(tile.instance), grid_of(plan), stream, params);
}

}  // namespace convt
