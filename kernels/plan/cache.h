// Plans by problem: planning looks at hundreds of tiles, a training loop asks for the same few again
// and again. The only state of the planner; a plan stays a pure function of (problem, device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"

namespace convt {

// The candidate_plans() that a call may come to, in their order: choose_plan() first, and behind it those that need
// less of the call than all before them. A call whose tensors begin between vectors, or whose workspace finds no
// memory, takes the first whose needs are met. `preferred` is the number of the candidate that comes first instead:
// what a measurement found; a number that the problem does not have counts as 0. Remembered for the problems that
// were asked for last. Thread-safe.
std::shared_ptr<const std::vector<Plan>> cached_plans(const ConvTProblem& problem, const DeviceInfo& device,
                                                      int64_t preferred = 0);

// choose_plan() alone, remembered alike: most calls need no other, and searching for all takes several times as long.
std::shared_ptr<const std::vector<Plan>> cached_choice(const ConvTProblem& problem, const DeviceInfo& device);

// All candidate_plans(), of which this thread's last problem is remembered: for races, tests and tuning, which run one
// after the other.
const std::vector<Plan>& all_candidates(const ConvTProblem& problem, const DeviceInfo& device);

struct CacheSize {
  size_t entries;
  size_t bytes;  // of keys and plans, and about what lists and tables take for them
};

// What cached_plans() holds now, and the bytes that it never passes.
CacheSize plan_cache_size();
inline constexpr size_t kMaxPlanCacheBytes = size_t{2} << 20;

}  // namespace convt
