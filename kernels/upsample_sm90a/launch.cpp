#include <algorithm>

#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"
#include "upsample_sm90a/instances.h"
#include "upsample_sm90a/params.h"

namespace convt {

CONVT_KERNEL_TABLE(upsample_sm90a, CONVT_UPSAMPLE_INSTANCES)

namespace {

// The source as [image][channel][row][column], columns innermost.
CUtensorMap map_source(const ConvTProblem& problem, const UpsampleLayout& layout, const void* source) {
  const int64_t* stride = problem.x_stride;
  const TensorBox box = {
      source,
      {problem.w.in, problem.h.in, problem.c_in, problem.batch},
      {stride[2], stride[1], stride[0]},
      {layout.pitch, 1, kUpsampleChannels, 1},
  };
  return make_tensor_map(problem.dtype, box);
}

}  // namespace

void launch_upsample(const ConvTProblem& problem, const Plan& plan, const UpsampleTile& tile, const Pointers& pointers,
                     cudaStream_t stream) {
  instance_of(kUpsampleInstances, tile.instance, problem, plan);
  upsample_sm90a::Params params{};
  check_layout(make_upsample_layout(problem, tile, &params), params, plan);
  params.by_boxes = plan.source_on_vectors;
  if (params.by_boxes) params.map = map_source(problem, params, pointers.x);
  params.weight_on_vectors = plan.weight_on_vectors;
  params.source = pointers.x;
  params.weight = pointers.w;
  params.bias = pointers.bias;
  params.result = pointers.y;
  std::copy_n(problem.x_stride, 4, params.source_stride);
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  std::copy_n(problem.y_stride, 3, params.result_stride);
  launch_kernel(upsample_sm90a::kKernels[tile.instance](), grid_of(plan), stream, params);
}

}  // namespace convt
