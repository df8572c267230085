// Plans by problem: planning looks at hundreds of tiles, a training loop asks for the same few again
// and again. The only state of the planner; a plan stays a pure function of (problem, device).
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"

namespace convt {

// candidate_plans(), remembered; the first is choose_plan(). Thread-safe.
std::shared_ptr<const std::vector<Plan>> cached_plans(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
