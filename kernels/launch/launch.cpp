#include "launch/launch.h"

#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "problem/describe.h"

namespace convt {

bool can_launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers) {
  const void* source = problem.direction == Direction::kForward ? pointers.x : pointers.y;
  const void* result = problem.direction == Direction::kForward ? pointers.y : pointers.x;
  return (!plan.source_on_vectors || is_aligned(source, 16)) &&
         (!plan.weight_on_vectors || is_aligned(pointers.w, 16)) && (!plan.result_on_vectors || is_aligned(result, 16));
}

namespace {

using Launch = void (*)(const ConvTProblem&, const Plan&, const Pointers&, cudaStream_t);
template <typename T, void (*kLaunch)(const ConvTProblem&, const Plan&, const T&, const Pointers&, cudaStream_t)>
void launch_tile(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  kLaunch(problem, plan, tile_of<T>(plan), pointers, stream);
}

#define CONVT_ROW(Tile, name, ...) &launch_tile<Tile, &launch_##name>,
constexpr Launch kLaunches[] = {CONVT_FAMILIES(CONVT_ROW)};
#undef CONVT_ROW

}  // namespace

void launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  try {
    kLaunches[plan.tile.index() - 1](problem, plan, pointers, stream);
  } catch (const TensorMapError& error) {
    throw std::runtime_error(std::string(error.what()) + ". It is a tensor map of " + plan.kernel + "'s, " +
                             describe(problem) + ". This is a mistake of the planner's: please report it");
  }
}

}  // namespace convt
