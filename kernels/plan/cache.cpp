#include "plan/cache.h"

#include <array>
#include <cmath>
#include <mutex>
#include <unordered_map>

namespace convt {
namespace {

constexpr size_t kMaxEntries = 1024;  // about 4 MiB; then the cache starts again

// Everything that candidate_plans() reads, as numbers: no padding, so equal problems have equal keys.
using Key = std::array<int64_t, 38>;

Key make_key(const ConvTProblem& problem, const DeviceInfo& device) {
  Key key{static_cast<int64_t>(problem.direction), problem.batch, problem.c_in, problem.c_out, problem.groups};
  size_t next = 5;
  for (const Axis* axis : {&problem.h, &problem.w}) {
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
  key[next++] = device.compute_capability;
  key[next++] = device.num_sms;
  key[next++] = device.shared_per_block;
  key[next++] = device.shared_per_sm;
  key[next++] = std::llround(device.clock_ghz * 1e3);
  key[next++] = std::llround(device.copy_gb_per_s);
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

}  // namespace

std::shared_ptr<const std::vector<Plan>> cached_plans(const ConvTProblem& problem, const DeviceInfo& device) {
  static std::mutex mutex;
  static std::unordered_map<Key, std::shared_ptr<const std::vector<Plan>>, HashKey> known;
  const Key key = make_key(problem, device);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
  }
  auto plans = std::make_shared<const std::vector<Plan>>(candidate_plans(problem, device));
  const std::lock_guard<std::mutex> lock(mutex);
  if (known.size() >= kMaxEntries) known.clear();
  known.emplace(key, plans);
  return plans;
}

}  // namespace convt
