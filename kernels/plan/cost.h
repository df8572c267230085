// What the families' searches for plans share: estimates of time, the plans that are best by them, and the memory of
// slabs. Units: issue slots and cycles of one SM, bytes, microseconds.
// Must not know: torch, CUDA, any family.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// Multiply-adds that land inside the output, whole problem.
double useful_multiply_adds(const ConvTProblem& problem);

// Of the whole input and the whole output; gradients have their shapes.
inline double input_elements(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_in * problem.h.in * problem.w.in;
}
inline double output_elements(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_out * problem.h.out * problem.w.out;
}

// Whether no tensor cores are asked for. The least times of calls are fitted for these classes and the others apart.
inline bool is_exact(const ConvTProblem& problem) {
  return problem.precision == Precision::kIeee || problem.precision == Precision::kAten;
}

// A plan that was estimated for the reference GPU, h200(), on `device`, and `longer` times as long: in proportion to
// the rates of multiply-adds. So the candidates of a gradient of the weight, whose plans decide bits, have the same
// order on every GPU.
void estimate_in_proportion(const DeviceInfo& device, bool float64, double longer, Plan* plan);

// Slabs are arrays of partial sums, as large as the weight, that reduce/ adds to its gradient.
inline constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

// What `slabs` slabs take, or 2^60 where that is more than any memory.
inline int64_t slab_bytes(const ConvTProblem& problem, int64_t slabs) {
  constexpr int64_t kMostBytes = int64_t{1} << 60;
  const int64_t elements = weight_elements(problem), bytes = problem.dtype == DataType::kFloat64 ? 8 : 4;
  return slabs > kMostBytes / bytes / elements ? kMostBytes : slabs * elements * bytes;
}

// The plans of one instance with the shortest estimates: there are thousands, and a few are enough.
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
