#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "plan/engines.h"
#include "plan/plan.h"

namespace convt {
namespace {

constexpr size_t kMaxCandidates = 24;

// Plans of an engine whose tests do not stand in the GPU report yet come behind all others: tests and tuning can force
// them, no call gets them by itself.
bool is_proven(Engine engine) { return engine != Engine::kThin; }

}  // namespace

std::vector<Plan> candidate_plans(const ConvTProblem& problem, const DeviceInfo& device) {
  std::vector<Plan> plans;
  add_simt_plans(problem, device, &plans);
  add_thin_plans(problem, device, &plans);
  add_wgmma_plans(problem, device, &plans);
  if (plans.empty()) {
    throw std::invalid_argument("convt_ext: no kernel's tile fits into " + std::to_string(device.shared_per_block) +
                                " bytes of shared memory for this problem");
  }
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    if (is_proven(a.engine) != is_proven(b.engine)) return is_proven(a.engine);
    return a.estimate_us < b.estimate_us;
  });
  // The best ones of every engine, and the best of every instance. A name is one constant, so its address will do.
  std::vector<Plan> kept;
  std::map<Engine, size_t> of_engine;
  std::vector<const char*> seen;
  for (const Plan& plan : plans) {
    const bool first = std::find(seen.begin(), seen.end(), plan.kernel) == seen.end();
    if (of_engine[plan.engine]++ < kMaxCandidates || first) kept.push_back(plan);
    if (first) seen.push_back(plan.kernel);
  }
  return kept;
}

Plan choose_plan(const ConvTProblem& problem, const DeviceInfo& device) {
  return candidate_plans(problem, device).front();
}

}  // namespace convt
