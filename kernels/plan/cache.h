// Plans by problem: planning looks at hundreds of tiles, a training loop asks for the same few again
// and again. The only state of the planner; a plan stays a pure function of (problem, device).
#pragma once

#include "plan/plan.h"

namespace convt {

// choose_plan(), remembered. Thread-safe.
Plan cached_plan(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
