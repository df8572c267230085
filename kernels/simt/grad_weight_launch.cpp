#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "plan/kernel_table.h"
#include "reduce/launch.h"
#include "simt/grad_weight_layout.h"
#include "simt/grad_weight_params.h"
#include "simt/instances.h"

namespace convt {

CONVT_KERNEL_TABLE(simt, CONVT_GRAD_WEIGHT_INSTANCES, const void*)

void launch_simt_grad_weight(const ConvTProblem& problem, const Plan& plan, const SimtGradWeightTile& tile,
                             const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumGradWeightInstances || kGradWeightInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no kernel instance number " + std::to_string(index) + " computes " +
                             name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  simt::GradWeightParams params{};
  params.x = pointers.x;
  params.gy = pointers.y;
  params.slabs = pointers.workspace;
  params.problem = problem;
  params.plan = tile;
  params.grid = make_grad_weight_grid(problem, tile);
  make_grad_weight_layout(problem, tile, &params.layout);
  params.group_c_in = static_cast<int32_t>(problem.c_in / problem.groups);
  params.group_c_out = static_cast<int32_t>(problem.c_out / problem.groups);
  launch_kernel(simt::kKernels[index](), grid_of(plan), stream, params);

  const int64_t* w_stride = problem.w_stride;
  const int64_t size[4] = {problem.c_in, problem.h.kernel, problem.w.kernel, params.group_c_out};
  const int64_t stride[4] = {w_stride[0], w_stride[2], w_stride[3], w_stride[1]};
  launch_add_slabs(problem.dtype, pointers.workspace, int64_t{params.grid.chunks} * tile.splits, size, stride,
                   pointers.w, stream);
}

}  // namespace convt
