// The plans of one instance with the shortest estimates: there are thousands, and a few are enough.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/plan.h"

namespace convt {

class BestPlans {
 public:
  explicit BestPlans(size_t most) : most_(most) {}

  // Of equal estimates the first one stays first.
  void consider(const Plan& plan) {
    const auto place = std::find_if(plans_.begin(), plans_.end(),
                                    [&](const Plan& other) { return plan.estimate_us < other.estimate_us; });
    if (place == plans_.end() && plans_.size() == most_) return;
    plans_.insert(place, plan);
    if (plans_.size() > most_) plans_.pop_back();
  }

  const std::vector<Plan>& plans() const { return plans_; }

  void append_to(std::vector<Plan>* plans) const { plans->insert(plans->end(), plans_.begin(), plans_.end()); }

 private:
  size_t most_;
  std::vector<Plan> plans_;
};

}  // namespace convt
