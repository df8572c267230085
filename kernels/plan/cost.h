// Shared by the plan searches of all families: time estimates, lists of the best plans, and the memory of slabs. Units:
// issue slots and cycles of one SM, bytes, microseconds.
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

// Multiply-adds of the whole problem whose output coordinate exists.
double useful_multiply_adds(const ConvTProblem& problem);

// Elements of the whole input and the whole output. Gradients have the same shapes.
inline double input_elements(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_in * problem.d.in * problem.h.in * problem.w.in;
}
inline double output_elements(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_out * problem.d.out * problem.h.out * problem.w.out;
}

// Whether the class excludes tensor cores. The cost model of PyTorch is fitted separately for exact classes.
inline bool is_exact(const ConvTProblem& problem) {
  return problem.precision == Precision::kIeee || problem.precision == Precision::kAten;
}

// Scales `longer`, a time on the reference GPU h200(), by the ratio of multiply-add rates. Plans of the gradient of the
// weight determine result bits, and this scaling keeps the order of its candidates the same on every GPU.
double proportion(const DeviceInfo& device, bool float64, double longer = 1);

// Multiplies the plan's times by `longer`.
void estimate_in_proportion(double longer, Plan* plan);

// Slabs are arrays of partial sums, as large as the weight. reduce/ adds them into the gradient.
inline constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

// Limit on the pixels that one float32 accumulator of a gradient of the weight adds, if the workspace allows. It bounds
// rounding errors. It is the same on all GPUs, because it determines the accumulation order.
inline constexpr int64_t kLongestChain = 16384;

// Shared memory of a CTA in the gradient of the weight on CUDA cores. It determines tiles and chunks, and so the
// accumulation order. All GPUs use the limit of compute capability 7.5, which is the smallest (1 KiB is reserved by the
// system).
inline constexpr int32_t kGradWeightShared = 63 * 1024;

// Bytes of `slabs` slabs, or 2^60 if that exceeds any memory.
inline int64_t slab_bytes(const ConvTProblem& problem, int64_t slabs) {
  constexpr int64_t kMostBytes = int64_t{1} << 60;
  const int64_t elements = weight_elements(problem), bytes = problem.dtype == DataType::kFloat64 ? 8 : 4;
  return slabs > kMostBytes / bytes / elements ? kMostBytes : slabs * elements * bytes;
}

// Pixel units per chunk, for about `wanted` chunks, with chains within kLongestChain and slabs within the workspace. A
// unit adds `pixels` to a chain.
inline int32_t units_of_chunk(const ConvTProblem& problem, int64_t units, int64_t pixels, int64_t wanted) {
  int64_t chunks = std::max(wanted, (units * pixels + kLongestChain - 1) / kLongestChain);
  chunks = std::min(chunks, kMaxWorkspaceBytes / slab_bytes(problem, 1));
  chunks = std::clamp<int64_t>(chunks, 1, units);
  return static_cast<int32_t>((units + chunks - 1) / chunks);
}

// Calls visit(units) for the chunk sizes that give one to `most_waves` waves of CTAs on the reference GPU, with one CTA
// per SM and `passes` CTAs per chunk. Each size is visited once.
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

// Factor on lower bounds that absorbs rounding: an estimate may add the same terms in another order.
inline constexpr double kRounded = 1 - 1e-9;

// The plans of one instance with the shortest estimates. Ties are ordered by `number`, then by insertion.
class BestPlans {
 public:
  // Plans with estimates above `longest_us` are dropped.
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

  // Plans with longer estimates are dropped.
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

// Branch and bound: parts of a search, each with a lower bound of its plans' estimates. Parts are visited in order of
// their bounds. The search stops when the next bound exceeds the estimates of all plans that are kept.
template <typename Part>
class BoundedParts {
 public:
  void add(double bound_us, const Part& part) {
    parts_.push_back({bound_us, static_cast<int32_t>(parts_.size()), part});
  }

  // Calls visit(part, number). `number` is the part's insertion index, by which BestPlans orders equal estimates.
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
