// The launch of the patch engine's gradient of the weight, and of the sum of its slabs.
#include "launch/families.h"
#include "launch/operands.h"
#include "patch_sm90a/grad_weight_params.h"
#include "patch_sm90a/instances.h"
#include "plan/cost.h"
#include "plan/kernel_table.h"
#include "reduce/launch.h"

namespace convt {

CONVT_NAMED_KERNEL_TABLE(patch_sm90a, kGradWeightKernels, CONVT_PATCH_WEIGHT_INSTANCES, const void*)

namespace {

CUtensorMap map_pixels(const ConvTProblem& problem, const PatchGradWeightLayout& layout, int32_t columns,
                       const void* x) {
  const int64_t* stride = problem.x_stride;
  TensorBox box{x,
                {problem.w.in, problem.h.in, problem.c_in, problem.batch},
                {stride[2], stride[1], stride[0]},
                {static_cast<int32_t>(128 / element_bytes(problem.dtype)), 1, columns, 1}};
  if (layout.whole_rows) {
    box.sizes[0] *= problem.h.in;
    box.sizes[1] = 1;
  }
  box.swizzle_bytes = 128;
  box.rounded = problem.dtype == DataType::kFloat32;
  return make_tensor_map(problem.dtype, box);
}

CUtensorMap map_taps(const ConvTProblem& problem, const PatchGradWeightLayout& layout, const void* gy) {
  const int64_t* stride = problem.y_stride;
  TensorBox box{gy,
                {problem.w.out, layout.kernel_h, problem.h.in, problem.c_out, problem.batch},
                {stride[2], layout.kernel_h * stride[2], stride[1], stride[0]},
                {layout.columns, 1, layout.rows, kPatchWeightRows, 1},
                5};
  return make_tensor_map(problem.dtype, box);
}

}  // namespace

void launch_patch_grad_weight(const ConvTProblem& problem, const Plan& plan, const PatchGradWeightTile& tile,
                              const Pointers& pointers, cudaStream_t stream) {
  const PatchGradWeightInstance& instance = instance_of(kPatchGradWeightInstances, tile.instance, problem, plan);
  patch_sm90a::GradWeightParams params{};
  PatchGradWeightLayout& layout = params.layout;
  check_layout(make_patch_grad_weight_layout(problem, tile, &layout), layout, plan);
  params.x = map_pixels(problem, layout, instance.columns, pointers.x);
  params.gy = map_taps(problem, layout, pointers.y);
  params.slabs = static_cast<float*>(pointers.workspace);
  if (pointers.grad_bias != nullptr) params.bias_slabs = params.slabs + slab_bytes(problem, layout.chunks) / 4;
  launch_kernel(patch_sm90a::kGradWeightKernels[tile.instance](), grid_of(plan), stream, params);
  const int64_t size[4] = {layout.channels, layout.group_co, layout.kernel_h, layout.kernel_w};
  launch_add_slabs(problem.dtype, pointers.workspace, layout.chunks, size, problem.w_stride, pointers.w, stream);
  if (pointers.grad_bias == nullptr) return;
  launch_add_bias(problem.dtype, problem.c_out, params.bias_slabs, int64_t{layout.chunks} * layout.kernel_h,
                  pointers.grad_bias, stream);
}

}  // namespace convt
