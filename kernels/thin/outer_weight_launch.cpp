#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "plan/kernel_table.h"
#include "reduce/launch.h"
#include "thin/instances.h"
#include "thin/outer_weight_layout.h"
#include "thin/outer_weight_params.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_OUTER_WEIGHT_INSTANCES, const void*)

void launch_thin_outer_weight(const ConvTProblem& problem, const Plan& plan, const ThinOuterWeightTile& tile,
                              const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumThinOuterWeightInstances || kThinOuterWeightInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no thin kernel of outer products number " + std::to_string(index) +
                             " computes " + name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  thin::OuterWeightParams params{};
  const bool legal = make_thin_outer_weight_layout(problem, tile, &params);
  if (!legal || params.threads != plan.threads || params.shared_bytes != plan.shared_bytes ||
      params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  params.x = static_cast<const float*>(pointers.x);
  params.gy = static_cast<const float*>(pointers.y);
  params.slabs = static_cast<float*>(pointers.workspace);
  params.x_image = problem.x_stride[0];
  params.x_row = problem.x_stride[2];
  params.gy_image = problem.y_stride[0];
  params.gy_row = problem.y_stride[2];
  // The widest copies that everything in their way is a multiple of.
  auto widest = [](const void* begin, std::initializer_list<int64_t> distances) {
    for (const int32_t elems : {4, 2}) {
      bool whole = is_aligned(begin, 4 * elems);
      for (const int64_t distance : distances) whole = whole && distance % elems == 0;
      if (whole) return elems;
    }
    return 1;
  };
  const int32_t block = params.block_vectors * kThinOuterWeightInstances[index].width;
  params.x_copy = widest(pointers.x, {problem.c_in, params.x_image, params.x_row});
  params.gy_copy =
      widest(pointers.y, {params.gy_image, params.gy_row, problem.w.padding * problem.c_out,
                          problem.w.out * problem.c_out, int64_t{params.tile_w} * problem.w.stride * problem.c_out,
                          params.vector_tiles > 1 ? block : 0, params.w.dilation > 1 ? problem.c_out : 0});
  params.by_x_vectors = Divisor::of(params.block_ci / params.x_copy);
  launch_kernel(thin::kKernels[index](), grid_of(plan), stream, params);
  const int64_t* w_stride = problem.w_stride;
  const int64_t size[4] = {problem.c_in, problem.h.kernel, problem.w.kernel, problem.c_out};
  const int64_t stride[4] = {w_stride[0], w_stride[2], w_stride[3], w_stride[1]};
  launch_add_slabs(problem.dtype, pointers.workspace, params.chunks, size, stride, pointers.w, stream);
}

}  // namespace convt
