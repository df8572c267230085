#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "plan/cost.h"
#include "plan/family.h"
#include "plan/plan.h"
#include "problem/shapes.h"

namespace convt {
namespace {

constexpr size_t kMaxCandidates = 24;

// Rejects tensors whose element count or extent in memory exceeds 2^60, so that 64-bit index arithmetic cannot
// overflow.
void check_sizes(const ConvTProblem& problem) {
  constexpr double kMost = static_cast<double>(int64_t{1} << 60);
  struct Tensor {
    const char* name;
    const int64_t* sizes;
    const int64_t* strides;
    int32_t planes;
    int64_t plane;  // stride
  };
  const Shapes shapes = shapes_of(problem);
  for (const Tensor& tensor : {Tensor{"input", shapes.x, problem.x_stride, problem.d.in, problem.x_plane},
                               Tensor{"weight", shapes.w, problem.w_stride, problem.d.kernel, problem.w_plane},
                               Tensor{"output", shapes.y, problem.y_stride, problem.d.out, problem.y_plane}}) {
    double elements = tensor.planes, distance = (elements - 1) * std::abs(static_cast<double>(tensor.plane));
    for (int axis = 0; axis < 4; ++axis) {
      const auto size = static_cast<double>(tensor.sizes[axis]);
      elements *= size;
      distance += (size - 1) * std::abs(static_cast<double>(tensor.strides[axis]));
    }
    if (elements > kMost || distance > kMost) {
      throw std::invalid_argument(std::string("convt_ext: the ") + tensor.name +
                                  " has more than 2^60 elements, or has them further apart");
    }
  }
}

// Whether the class multiplies single TF32 or half-precision values, without splitting operands.
bool multiplies_single_terms(const ConvTProblem& problem) {
  const bool half = problem.dtype == DataType::kFloat16 || problem.dtype == DataType::kBFloat16;
  return half ? problem.precision == Precision::kHalf
              : problem.dtype == DataType::kFloat32 && problem.precision == Precision::kTf32;
}

// Whether the family's kernels run on CUDA cores in every class that it supports.
bool is_without_tensor_cores(const Family& family) {
  return family.serves == &any_class || family.serves == &sums_as_ieee;
}

// Engines that share one limit on the number of candidates. The CUDA-core engines for few channels share one, because
// they have candidates for the same layers.
std::string_view allowance_group(const Plan& plan) {
  const std::string_view engine = plan.family->engine;
  return engine == "depthwise" || engine == "gather" ? "thin" : engine;
}

bool is_same(const Plan& a, const Plan& b) {
  if (a.kernel != b.kernel || a.estimate_us != b.estimate_us || a.threads != b.threads) return false;
  const auto fields_of = [](const Plan& plan) {
    std::vector<double> fields;
    visit_fields(plan.tile, [&fields](std::string_view, auto value) { fields.push_back(static_cast<double>(value)); });
    return fields;
  };
  return fields_of(a) == fields_of(b);
}

// Lower bound of the estimates of all CUDA-core plans, from the fraction of peak that their engines are expected to
// reach.
double least_us_without_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device) {
  const double longer = problem.direction == Direction::kGradWeight ? 1.7 : 2.1;
  const double per_us =
      multiply_adds_per_cycle(device, problem.dtype == DataType::kFloat64) * device.num_sms * device.clock_ghz * 1e3;
  return longer * useful_multiply_adds(problem) / per_us;
}

void add_plans(const Family& family, const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  const size_t first = plans->size();
  family.add(problem, device, plans);
  for (size_t i = first; i < plans->size(); ++i) (*plans)[i].family = &family;
}

// wgmma exists only in code compiled for 9.0a. A binary without that code still runs on Hopper if it contains PTX.
#ifdef CONVT_ARCHITECTURES
constexpr bool kHasHopperCode = std::string_view(CONVT_ARCHITECTURES).find("9.0a") != std::string_view::npos;
#else
constexpr bool kHasHopperCode = true;
#endif

}  // namespace

bool has_hopper_kernels(const DeviceInfo& device) { return kHasHopperCode && device.compute_capability == 90; }

bool any_class(const ConvTProblem&, const DeviceInfo&) { return true; }

bool sums_as_ieee(const ConvTProblem& problem, const DeviceInfo&) {
  const bool aten_order = problem.direction == Direction::kForward && problem.precision == Precision::kAten;
  return problem.batch > 0 && problem.dtype != DataType::kFloat64 && !aten_order && !is_volume(problem);
}

bool on_hopper_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device) {
  return on_hopper_in_any_depth(problem, device) && !is_volume(problem);
}

bool on_hopper_in_any_depth(const ConvTProblem& problem, const DeviceInfo& device) {
  const bool split = problem.dtype == DataType::kFloat32 && problem.precision == Precision::kTf32x3;
  return has_hopper_kernels(device) && (split || multiplies_single_terms(problem));
}

bool on_portable_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device) {
  constexpr int32_t kFirst = 80;
  return device.compute_capability >= kFirst && multiplies_single_terms(problem) && !is_volume(problem);
}

std::vector<Plan> candidate_plans(const ConvTProblem& problem, const DeviceInfo& device) {
  Candidates plans;
  plans.push_back(choose_plan(problem, device));
  for (const Family& family : families()) {
    if (family.serves(problem, device)) add_plans(family, problem, device, &plans);
  }
  // The chosen plan stays first. The bounded search of choose_plan() may have missed a slightly better plan.
  std::stable_sort(plans.begin() + 1, plans.end(),
                   [](const Plan& a, const Plan& b) { return a.estimate_us < b.estimate_us; });
  // Keep the chosen plan once, the best plans of each group of engines, and the best plan of each instance. Each kernel
  // name is one constant, so pointers are compared.
  std::vector<Plan> kept;
  std::map<std::string_view, size_t> of_group;
  std::vector<const char*> seen;
  for (const Plan& plan : plans) {
    if (!kept.empty() && is_same(plan, kept.front())) continue;
    const bool first = std::find(seen.begin(), seen.end(), plan.kernel) == seen.end();
    if (of_group[allowance_group(plan)]++ < kMaxCandidates || first) kept.push_back(plan);
    if (first) seen.push_back(plan.kernel);
  }
  return kept;
}

std::vector<size_t> contenders(const std::vector<Plan>& candidates, size_t most) {
  // Selecting a plan adds a penalty to the scores of the remaining plans of the same kernel and of the same group of
  // engines, relative to their estimates.
  constexpr double kSameKernel = 0.2, kSameGroup = 0.1, kHopeless = 2.5, kOverheadUs = 4;
  std::vector<size_t> chosen;
  std::vector<double> scores;
  for (const Plan& plan : candidates) scores.push_back(plan.estimate_us);
  const double worst = kHopeless * candidates.front().estimate_us + kOverheadUs;
  size_t next = 0;
  while (chosen.size() < most && scores[next] <= worst) {
    chosen.push_back(next);
    const Plan& last = candidates[next];
    for (size_t i = 0; i < candidates.size(); ++i) {
      const bool same_group = allowance_group(candidates[i]) == allowance_group(last);
      scores[i] += candidates[i].estimate_us * (candidates[i].kernel == last.kernel ? kSameKernel + kSameGroup
                                                : same_group                        ? kSameGroup
                                                                                    : 0);
    }
    scores[next] = std::numeric_limits<double>::infinity();
    next = static_cast<size_t>(std::min_element(scores.begin(), scores.end()) - scores.begin());
  }
  return chosen;
}

Plan choose_plan(const ConvTProblem& problem, const DeviceInfo& device) {
  check_sizes(problem);
  Plan best{};
  best.estimate_us = HUGE_VAL;
  const auto search = [&](const Family& family) {
    if (!family.serves(problem, device)) return;
    Candidates plans;
    plans.only_best = true;
    plans.most_us = best.estimate_us;
    add_plans(family, problem, device, &plans);
    for (const Plan& plan : plans) {
      const bool is_earlier = plan.estimate_us == best.estimate_us && &family < best.family;
      if (plan.estimate_us < best.estimate_us || is_earlier) best = plan;
    }
  };
  for (const Family& family : families()) {
    if (!is_without_tensor_cores(family)) search(family);
  }
  const double least_us = least_us_without_tensor_cores(problem, device);
  for (const Family& family : families()) {
    if (is_without_tensor_cores(family) && least_us <= best.estimate_us) search(family);
  }
  if (best.kernel == nullptr && is_volume(problem)) {
    throw std::invalid_argument("convt_ext: kernels support up to 4096 taps along the depth, got " +
                                std::to_string(problem.d.kernel));
  }
  if (best.kernel == nullptr) {
    throw std::invalid_argument("convt_ext: no kernel's tile fits into " + std::to_string(device.shared_per_block) +
                                " bytes of shared memory for this problem");
  }
  return best;
}

}  // namespace convt
