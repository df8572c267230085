#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "plan/kernel_table.h"
#include "thin/grad_input_layout.h"
#include "thin/grad_input_params.h"
#include "thin/instances.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_GRAD_INPUT_INSTANCES, const void*)

namespace {

// Columns that a thread can read at once: neighbouring taps, at the same place within a vector for all positions.
int32_t vector_columns(const thin::GradInputParams& params) {
  if (params.w.dilation != 1) return 1;
  for (const int32_t vector : {4, 2}) {
    if (params.w.stride % vector == 0 && params.pitches.position % vector == 0 && params.w.kernel >= vector) {
      return vector;
    }
  }
  return 1;
}

}  // namespace

void launch_thin_grad_input(const ConvTProblem& problem, const Plan& plan, const ThinGradInputTile& tile,
                            const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumThinGradInputInstances || kThinGradInputInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no thin kernel instance number " + std::to_string(index) + " computes " +
                             name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  thin::GradInputParams params{};
  const bool legal = make_thin_grad_input_layout(problem, tile, &params);
  if (!legal || params.threads != plan.threads || params.shared_bytes != plan.shared_bytes ||
      params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  params.gy = pointers.y;
  params.weight = pointers.w;
  params.gx = pointers.x;
  std::copy_n(problem.y_stride, 4, params.gy_stride);
  std::copy_n(problem.w_stride, 4, params.weight_stride);
  std::copy_n(problem.x_stride, 4, params.gx_stride);
  params.pitches = make_thin_pitches(params, problem);
  params.by_slots = Reciprocal::of(params.slots);
  params.by_kernel_h = Reciprocal::of(params.h.kernel);
  params.by_tiles_w = Reciprocal::of(params.tiles_w);
  params.by_tiles_h = Reciprocal::of(params.tiles_h);
  params.vector = vector_columns(params);
  params.copy_vectors = problem.y_stride[3] == 1;
  // As many neighbouring threads copy a row as it has vectors, or a power of two below.
  const int32_t copies = params.columns / (params.copy_vectors ? vector_elements(problem.dtype) : 1);
  while (params.load_lanes_log2 < 5 && (2 << params.load_lanes_log2) <= copies) ++params.load_lanes_log2;
  launch_kernel(thin::kKernels[index](), grid_of(plan), stream, params);
}

}  // namespace convt
