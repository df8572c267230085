#include "launch/launch.h"

#include <stdexcept>
#include <string>

#include "launch/launcher.h"
#include "launch/operands.h"
#include "problem/describe.h"

namespace convt {

bool can_launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers) {
  const void* source = problem.direction == Direction::kForward ? pointers.x : pointers.y;
  const void* result = problem.direction == Direction::kForward ? pointers.y : pointers.x;
  return (!plan.source_on_vectors || is_aligned(source, 16)) &&
         (!plan.weight_on_vectors || is_aligned(pointers.w, 16)) && (!plan.result_on_vectors || is_aligned(result, 16));
}

void launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  if (plan.family == nullptr) throw std::logic_error("convt_ext: launch() got a plan that no search returned");
  try {
    const Launcher launcher = launcher_of(*plan.family);
    launcher(problem, plan, pointers, stream);
  } catch (const TensorMapError& error) {
    throw std::runtime_error(std::string(error.what()) + ". It is a tensor map of " + plan.kernel + "'s, " +
                             describe(problem) + ". This is a mistake of the planner's: please report it");
  }
}

}  // namespace convt
