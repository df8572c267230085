#include "plan/cache.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "plan/plan.h"

namespace convt {
namespace {

// Every input of candidate_plans() and the preferred candidate, as integers. The array has no padding, so equal
// problems have equal keys.
using Key = std::array<int64_t, 48>;

Key make_key(const ConvTProblem& problem, const DeviceInfo& device, int64_t preferred) {
  Key key{static_cast<int64_t>(problem.direction), problem.batch, problem.c_in, problem.c_out, problem.groups};
  size_t next = 5;
  for (const Axis* axis : {&problem.d, &problem.h, &problem.w}) {
    for (const int32_t number : {axis->in, axis->out, axis->kernel, axis->stride, axis->padding, axis->dilation}) {
      key[next++] = number;
    }
  }
  key[next++] = static_cast<int64_t>(problem.dtype);
  key[next++] = static_cast<int64_t>(problem.precision);
  key[next++] = problem.has_bias;
  for (const int64_t* strides : {problem.x_stride, problem.w_stride, problem.y_stride}) {
    for (int i = 0; i < 4; ++i) key[next++] = strides[i];
  }
  for (const int64_t stride : {problem.x_plane, problem.w_plane, problem.y_plane}) key[next++] = stride;
  key[next++] = device.compute_capability;
  key[next++] = device.num_sms;
  key[next++] = device.shared_per_block;
  key[next++] = device.shared_per_sm;
  key[next++] = std::llround(device.clock_ghz * 1e3);
  key[next++] = std::llround(device.copy_gb_per_s);
  key[next++] = preferred;
  return key;
}

struct HashKey {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const int64_t number : key) {
      hash ^= static_cast<uint64_t>(number);
      hash *= 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

using Plans = std::shared_ptr<const std::vector<Plan>>;

// Whether a call that cannot run `before` cannot run `plan` either: `plan` requires at least the same alignment, and
// its workspace is more than a quarter of that of `before`.
bool needs_as_much(const Plan& plan, const Plan& before) {
  constexpr int64_t kMuchSmaller = 4;
  return plan.source_on_vectors >= before.source_on_vectors && plan.weight_on_vectors >= before.weight_on_vectors &&
         plan.result_on_vectors >= before.result_on_vectors &&
         plan.workspace_bytes >= (before.workspace_bytes + kMuchSmaller - 1) / kMuchSmaller;
}

// Removes candidates that no call reaches. A call skips a plan only if it cannot meet the plan's requirements, so
// nothing after a plan without requirements is reachable.
std::vector<Plan> plans_of_calls(const std::vector<Plan>& candidates, int64_t preferred) {
  std::vector<Plan> kept;
  if (preferred < static_cast<int64_t>(candidates.size())) kept.push_back(candidates[preferred]);
  for (const Plan& plan : candidates) {
    bool reached = true;
    for (const Plan& before : kept) reached = reached && !needs_as_much(plan, before);
    if (reached) kept.push_back(plan);
  }
  kept.shrink_to_fit();
  return kept;
}

// LRU cache. Not thread-safe by itself.
class Cache {
 public:
  Plans find(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->plans;
  }

  void insert(const Key& key, const Plans& plans) {
    if (places_.count(key) > 0) return;  // another thread inserted the key first
    entries_.push_front({key, plans});
    places_.emplace(key, entries_.begin());
    bytes_ += bytes_of(entries_.front());
    while (bytes_ > kMaxPlanCacheBytes && entries_.size() > 1) {
      bytes_ -= bytes_of(entries_.back());
      places_.erase(entries_.back().key);
      entries_.pop_back();
    }
  }

  CacheSize size() const { return {entries_.size(), bytes_}; }

 private:
  struct Entry {
    Key key;
    Plans plans;
  };

  // Approximate memory of an entry: a list node and a table node (which repeats the key), two or three pointers each,
  // allocator overhead, and one block of plans.
  static size_t bytes_of(const Entry& entry) {
    constexpr size_t kPointers = 16 * sizeof(void*);
    return sizeof(Entry) + sizeof(Key) + kPointers + sizeof(std::vector<Plan>) + entry.plans->size() * sizeof(Plan);
  }

  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, HashKey> places_;
  size_t bytes_ = 0;
};

std::mutex mutex;

Cache& cache() {
  static Cache* const only = new Cache;  // never destroyed: threads may still call during process exit
  return *only;
}

constexpr int64_t kChoiceAlone = -1;  // replaces `preferred` in the keys of cached_choice()

// Returns the cached plans of `key`, or runs `search` and caches its result.
template <typename Search>
Plans remembered(const Key& key, const Search& search) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (Plans known = cache().find(key)) return known;
  }
  auto plans = std::make_shared<const std::vector<Plan>>(search());
  const std::lock_guard<std::mutex> lock(mutex);
  cache().insert(key, plans);
  return plans;
}

}  // namespace

std::shared_ptr<const std::vector<Plan>> cached_plans(const ConvTProblem& problem, const DeviceInfo& device,
                                                      int64_t preferred) {
  return remembered(make_key(problem, device, preferred), [&] {
    // A benchmark runs several candidates of one problem. all_candidates() plans them once.
    return plans_of_calls(preferred == 0 ? candidate_plans(problem, device) : all_candidates(problem, device),
                          preferred);
  });
}

std::shared_ptr<const std::vector<Plan>> cached_choice(const ConvTProblem& problem, const DeviceInfo& device) {
  return remembered(make_key(problem, device, kChoiceAlone),
                    [&] { return std::vector<Plan>{choose_plan(problem, device)}; });
}

const std::vector<Plan>& all_candidates(const ConvTProblem& problem, const DeviceInfo& device) {
  thread_local std::pair<Key, std::vector<Plan>> last;
  const Key key = make_key(problem, device, 0);
  if (last.second.empty() || last.first != key) last = {key, candidate_plans(problem, device)};
  return last.second;
}

CacheSize plan_cache_size() {
  const std::lock_guard<std::mutex> lock(mutex);
  return cache().size();
}

}  // namespace convt
