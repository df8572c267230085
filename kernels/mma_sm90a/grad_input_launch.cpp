#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "mma_sm90a/grad_input_layout.h"
#include "mma_sm90a/grad_input_params.h"
#include "mma_sm90a/instances.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(mma_sm90a, CONVT_MMA_GRAD_INPUT_INSTANCES, const void*)

void launch_mma_grad_input(const ConvTProblem& problem, const Plan& plan, const MmaGradInputTile& tile,
                           const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumMmaGradInputInstances || kMmaGradInputInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no mma kernel instance number " + std::to_string(index) + " computes " +
                             name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  mma_sm90a::GradInputParams params{};
  const bool legal = make_mma_grad_input_layout(problem, tile, &params);
  if (!legal || params.threads != plan.threads || params.shared_bytes != plan.shared_bytes ||
      params.num_blocks != plan.num_blocks) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  const int64_t last = (problem.batch - 1) * problem.y_stride[0] + (problem.c_out - 1) * problem.y_stride[1] +
                       (problem.h.out - 1) * problem.y_stride[2] + (problem.w.out - 1) * problem.y_stride[3];
  params.source = pointers.y;
  params.source_end = static_cast<const unsigned char*>(pointers.y) + (last + 1) * element_bytes(problem.dtype);
  params.zeroed = params.zeroed && is_aligned(params.source, 16);
  params.weight = pointers.w;
  const bool vectors = kMmaGradInputInstances[index].vectors;
  params.bulk_source = !vectors || is_aligned(params.source, 8);
  params.raw_weights = params.raw_weights && is_aligned(params.weight, 16);
  // All weights of a stage and channel follow each other, in whole vectors.
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel, bytes = element_bytes(problem.dtype);
  params.bulk_weights =
      params.interleaved || (is_aligned(pointers.w, 16) && problem.w_stride[3] == 1 &&
                             problem.w_stride[2] == problem.w.kernel && problem.w_stride[1] == taps &&
                             problem.w_stride[0] * bytes % 16 == 0 && params.chunk_co * taps * bytes % 16 == 0);
  params.result = pointers.x;
  if (!is_aligned(params.result, 16)) {
    throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  }
  launch_kernel(mma_sm90a::kKernels[index](), grid_of(plan), stream, params);
}

}  // namespace convt
