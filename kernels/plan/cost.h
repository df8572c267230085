// What the families' searches for plans share: estimates of time, the plans that are best by them, and the memory of
// slabs. Units: issue slots and cycles of one SM, bytes, microseconds.
// Must not know: torch, CUDA, any family.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "problem/problem.h"
#include "problem/shapes.h"

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

// `longer` times what a plan takes on `device` relative to the reference GPU, h200(): in proportion to the rates of
// multiply-adds, so that the candidates of a gradient of the weight, whose plans decide bits, have the same order on
// every GPU.
double proportion(const DeviceInfo& device, bool float64, double longer = 1);

// Makes the plan's times so many times as long.
void estimate_in_proportion(double longer, Plan* plan);

// Slabs are arrays of partial sums, as large as the weight, that reduce/ adds to its gradient.
inline constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

// The pixels that one float32 sum of a gradient of the weight adds up, where the workspace allows: few enough for small
// rounding errors. The same on all GPUs, as it decides the order of the sums.
inline constexpr int64_t kLongestChain = 16384;

// Shared memory of a CTA in the gradient of the weight on CUDA cores. It decides tiles and chunks, and so the order of
// the sums: all GPUs have that of compute capability 7.5, which has the least (1 KiB is the system's).
inline constexpr int32_t kGradWeightShared = 63 * 1024;

// What `slabs` slabs take, or 2^60 where that is more than any memory.
inline int64_t slab_bytes(const ConvTProblem& problem, int64_t slabs) {
  constexpr int64_t kMostBytes = int64_t{1} << 60;
  const int64_t elements = weight_elements(problem), bytes = problem.dtype == DataType::kFloat64 ? 8 : 4;
  return slabs > kMostBytes / bytes / elements ? kMostBytes : slabs * elements * bytes;
}

// The units of pixels that a chunk has: about `wanted` chunks, of chains that are not too long, whose slabs fit. A unit
// is `pixels` long in a chain.
inline int32_t units_of_chunk(const ConvTProblem& problem, int64_t units, int64_t pixels, int64_t wanted) {
  int64_t chunks = std::max(wanted, (units * pixels + kLongestChain - 1) / kLongestChain);
  chunks = std::min(chunks, kMaxWorkspaceBytes / slab_bytes(problem, 1));
  chunks = std::clamp<int64_t>(chunks, 1, units);
  return static_cast<int32_t>((units + chunks - 1) / chunks);
}

// Calls visit(units) for the chunks of one to `most_waves` waves of CTAs of the reference GPU, one a SM and `passes` of
// a chunk; each number of units once.
template <typename Visit>
void each_units_of_chunk(const ConvTProblem& problem, int64_t units, int64_t pixels, int32_t passes, int32_t most_waves,
                         Visit&& visit) {
  int32_t before = 0;
  for (int32_t waves = 1; waves <= most_waves; ++waves) {
    const int32_t of_chunk = units_of_chunk(problem, units, pixels, h200().num_sms * waves / passes);
    if (of_chunk != before) visit(of_chunk);
    before = of_chunk;
  }
}

// A lower bound times this is one in floating point too, whose sums may have another order.
inline constexpr double kRounded = 1 - 1e-9;

// The plans of one instance with the shortest estimates: there are thousands, and a few are enough. Of equal estimates
// the one with the lower number comes first, and of equal numbers the one that was considered first.
class BestPlans {
 public:
  // No plan whose estimate is longer than `longest_us` is kept.
  explicit BestPlans(size_t most, double longest_us = HUGE_VAL) : most_(most), longest_us_(longest_us) {}

  void consider(const Plan& plan, int32_t number = 0) {
    if (plan.estimate_us > worst_us()) return;
    size_t place = plans_.size();
    while (place > 0 && (plan.estimate_us < plans_[place - 1].estimate_us ||
                         (plan.estimate_us == plans_[place - 1].estimate_us && number < numbers_[place - 1]))) {
      --place;
    }
    if (place == most_) return;
    plans_.insert(plans_.begin() + static_cast<std::ptrdiff_t>(place), plan);
    numbers_.insert(numbers_.begin() + static_cast<std::ptrdiff_t>(place), number);
    if (plans_.size() > most_) plans_.pop_back(), numbers_.pop_back();
  }

  // No plan whose estimate is longer is kept.
  double worst_us() const {
    return plans_.size() < most_ ? longest_us_ : std::min(longest_us_, plans_.back().estimate_us);
  }

  const std::vector<Plan>& plans() const { return plans_; }

  void append_to(std::vector<Plan>* plans) const { plans->insert(plans->end(), plans_.begin(), plans_.end()); }

 private:
  size_t most_;
  double longest_us_;
  std::vector<Plan> plans_;
  std::vector<int32_t> numbers_;
};

// Parts of a search, each with a lower bound of the estimates of its plans. Most parts are never visited: those of the
// shortest bounds are first, and none whose bound is longer than the estimates of all plans that are kept.
template <typename Part>
class BoundedParts {
 public:
  void add(double bound_us, const Part& part) {
    parts_.push_back({bound_us, static_cast<int32_t>(parts_.size()), part});
  }

  // Calls visit(part, number), number the place in which it was added, by which BestPlans orders equal estimates.
  template <typename Visit>
  void search(const BestPlans& best, Visit&& visit) {
    auto later = [](const Bounded& a, const Bounded& b) { return a.bound_us > b.bound_us; };
    std::make_heap(parts_.begin(), parts_.end(), later);
    while (!parts_.empty() && parts_.front().bound_us * kRounded <= best.worst_us()) {
      std::pop_heap(parts_.begin(), parts_.end(), later);
      const Bounded next = parts_.back();
      parts_.pop_back();
      visit(next.part, next.number);
    }
    parts_.clear();
  }

 private:
  struct Bounded {
    double bound_us;
    int32_t number;
    Part part;
  };
  std::vector<Bounded> parts_;
};

}  // namespace convt
