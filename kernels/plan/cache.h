// Cache of plans by problem. Planning evaluates hundreds of tiles, and a training loop repeats the same few problems.
// This cache is the planner's only state: a plan is a pure function of (problem, device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"

namespace convt {

// The candidate_plans() that a call may use, in order: choose_plan() first, then plans with weaker requirements than
// all plans before them. A call uses the first plan whose alignment and workspace it can provide. `preferred` is the
// index of the candidate to put first, as selected by a benchmark; an index out of range counts as 0. Caches recent
// problems. Thread-safe.
std::shared_ptr<const std::vector<Plan>> cached_plans(const ConvTProblem& problem, const DeviceInfo& device,
                                                      int64_t preferred = 0);

// Only choose_plan(), cached in the same way. Most calls need no other plan, and a search for all candidates takes
// several times as long.
std::shared_ptr<const std::vector<Plan>> cached_choice(const ConvTProblem& problem, const DeviceInfo& device);

// All candidate_plans(). Each thread caches its last problem, for benchmarks, tests and tuning.
const std::vector<Plan>& all_candidates(const ConvTProblem& problem, const DeviceInfo& device);

struct CacheSize {
  size_t entries;
  size_t bytes;  // keys, plans, and approximate container overhead
};

// Current size of the cache, and its limit in bytes.
CacheSize plan_cache_size();
inline constexpr size_t kMaxPlanCacheBytes = size_t{2} << 20;

}  // namespace convt
