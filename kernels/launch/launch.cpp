#include "launch/launch.h"

#include <stdexcept>
#include <string>

#include "launch/engines.h"
#include "launch/tensor_map.h"
#include "problem/describe.h"

namespace convt {

bool can_launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers) {
  const void* source = problem.direction == Direction::kForward ? pointers.x : pointers.y;
  const void* result = problem.direction == Direction::kForward ? pointers.y : pointers.x;
  return (!plan.source_on_vectors || is_aligned(source, 16)) &&
         (!plan.weight_on_vectors || is_aligned(pointers.w, 16)) && (!plan.result_on_vectors || is_aligned(result, 16));
}

namespace {

void launch_engine(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  switch (plan.engine) {
    case Engine::kSimt: return launch_simt(problem, plan, pointers, stream);
    case Engine::kThin: return launch_thin(problem, plan, pointers, stream);
    case Engine::kWgmma: return launch_wgmma(problem, plan, pointers, stream);
    case Engine::kFlat: return launch_flat(problem, plan, pointers, stream);
    case Engine::kPatch: return launch_patch(problem, plan, pointers, stream);
    case Engine::kMma: return launch_mma(problem, plan, pointers, stream);
    case Engine::kStrided: return launch_strided(problem, plan, pointers, stream);
    case Engine::kWindow: return launch_window(problem, plan, pointers, stream);
    case Engine::kNhwc: return launch_nhwc(problem, plan, pointers, stream);
    case Engine::kScatter: return launch_scatter(problem, plan, pointers, stream);
    case Engine::kUpsample: return launch_upsample(problem, plan, pointers, stream);
  }
  throw std::runtime_error("convt_ext: no engine number " + std::to_string(static_cast<int32_t>(plan.engine)));
}

}  // namespace

void launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  try {
    launch_engine(problem, plan, pointers, stream);
  } catch (const TensorMapError& error) {
    throw std::runtime_error(std::string(error.what()) + ". It is a tensor map of " + plan.kernel + "'s, " +
                             describe(problem) + ". This is a mistake of the planner's: please report it");
  }
}

}  // namespace convt
