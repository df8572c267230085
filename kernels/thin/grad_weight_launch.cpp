#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "plan/kernel_table.h"
#include "reduce/launch.h"
#include "thin/grad_weight_layout.h"
#include "thin/grad_weight_params.h"
#include "thin/instances.h"
#include "thin/weight_params.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_GRAD_WEIGHT_INSTANCES, const void*)

namespace {

thin::WeightOperand make_operand(const void* elements, const int64_t (&size)[4], const int64_t (&stride)[4],
                                 DataType dtype) {
  thin::WeightOperand operand{};
  operand.elements = elements;
  int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    operand.stride[i] = stride[i];
    last += (size[i] - 1) * stride[i];
  }
  operand.end = static_cast<const unsigned char*>(elements) + (last + 1) * element_bytes(dtype);
  return operand;
}

}  // namespace

void fill_thin_weight_params(const ConvTProblem& problem, const ThinGradWeightLayout& layout,
                             const ThinWeightPitches& pitches, int32_t loaders, const Pointers& pointers,
                             thin::GradWeightParams* params) {
  if (params != &layout) static_cast<ThinGradWeightLayout&>(*params) = layout;
  const int64_t x_size[4] = {problem.batch, problem.c_in, problem.h.in, problem.w.in};
  const int64_t gy_size[4] = {problem.batch, problem.c_out, problem.h.out, problem.w.out};
  params->x = make_operand(pointers.x, x_size, problem.x_stride, problem.dtype);
  params->gy = make_operand(pointers.y, gy_size, problem.y_stride, problem.dtype);
  params->slabs = static_cast<float*>(pointers.workspace);
  params->pitches = pitches;
  params->by_units_of_strip = Divisor::of(params->units_of_strip);
  params->by_strips = Divisor::of(params->strips);
  params->merged_rows = has_merged_rows(*params, problem);
  params->by_x_rows = Divisor::of(params->merged_rows ? 1 : params->tile_units * params->unit_rows);
  params->by_slots = Divisor::of(params->slots);
  params->by_block_kh = Divisor::of(params->block_kh);
  // As many warps copy each operand as it has rows.
  params->loaders = loaders;
  const int32_t x_rows = params->block_ci * params->by_x_rows.value;
  const int32_t share = ceil_div(params->loaders * x_rows, x_rows + params->block_co * params->slots);
  params->x_loaders = std::clamp(share, 1, std::max(1, params->loaders - 1));
  params->bulk = problem.x_stride[3] == 1 && problem.y_stride[3] == 1;
}

void launch_thin_grad_weight(const ConvTProblem& problem, const Plan& plan, const ThinGradWeightTile& tile,
                             const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumThinGradWeightInstances || kThinGradWeightInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no thin kernel instance number " + std::to_string(index) + " computes " +
                             name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  thin::GradWeightParams params{};
  const bool legal = make_thin_grad_weight_layout(problem, tile, &params);
  if (!legal || params.threads != plan.threads || params.shared_bytes != plan.shared_bytes ||
      params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  // A few warps copy a stage: six of twelve were the fastest by a little.
  int32_t loaders = params.threads / 32;
  for (const int32_t count : {2, 3, 4, 6}) {
    if (params.threads / 32 % count == 0) loaders = count;
  }
  fill_thin_weight_params(problem, params, make_thin_weight_pitches(params, problem), loaders, pointers, &params);
  while (params.unit_rows > 1 && (1 << params.strip_log2) < params.strip) ++params.strip_log2;
  params.by_columns_step = Divisor::of(params.unit_rows > 1 ? 1 : 32 * problem.w.stride);
  launch_kernel(thin::kKernels[index](), grid_of(plan), stream, params);
  const int64_t size[4] = {problem.c_in, params.group_co, problem.h.kernel, problem.w.kernel};
  launch_add_slabs(problem.dtype, pointers.workspace, params.chunks, size, problem.w_stride, pointers.w, stream);
}

}  // namespace convt
