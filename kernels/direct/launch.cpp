#include <stdexcept>
#include <string>

#include "direct/instances.h"
#include "direct/layout.h"
#include "direct/params.h"
#include "direct/weight_params.h"
#include "launch/families.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(direct, CONVT_THIN_DIRECT_INSTANCES, const void*)

namespace {

[[noreturn]] void refuse(const Plan& plan) {
  throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
}

void launch_weight(const ConvTProblem& problem, const Plan& plan, const ThinDirectTile& tile, const Pointers& pointers,
                   cudaStream_t stream) {
  direct::DirectWeightParams params{};
  if (!make_thin_direct_weight_layout(problem, &params) || params.num_blocks != plan.num_blocks) refuse(plan);
  params.x = pointers.x;
  params.gy = pointers.y;
  params.weight = pointers.w;
  launch_kernel(direct::kKernels[tile.instance](), grid_of(plan), stream, params);
}

}  // namespace

void launch_thin_direct(const ConvTProblem& problem, const Plan& plan, const ThinDirectTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  const int32_t index = tile.instance;
  if (index < 0 || index >= kNumThinDirectInstances || kThinDirectInstances[index].dtype != problem.dtype) {
    throw std::runtime_error("convt_ext: no kernel of small layers number " + std::to_string(index) + " computes in " +
                             name_of(problem.dtype));
  }
  if (kThinDirectInstances[index].direction != problem.direction) refuse(plan);
  if (problem.direction == Direction::kGradWeight) return launch_weight(problem, plan, tile, pointers, stream);
  direct::DirectParams params{};
  if (!make_thin_direct_layout(problem, &params) || params.num_blocks != plan.num_blocks ||
      params.terms != tile.terms) {
    refuse(plan);
  }
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.result = forward ? pointers.y : pointers.x;
  params.weight = pointers.w;
  params.bias = forward ? pointers.bias : nullptr;
  launch_kernel(direct::kKernels[index](), grid_of(plan), stream, params);
}

}  // namespace convt
