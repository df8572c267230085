// What the portable engine's planners share: how large a problem may be, how many stages an SM has room for, and how
// long a plan takes.
// Must not know: torch, CUDA.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plan/cost.h"
#include "plan/device.h"
#include "portable/pixels.h"
#include "problem/problem.h"

namespace convt {

inline constexpr int64_t kPortableMost =
    (int64_t{1} << 31) - (int64_t{1} << 12);  // what kernels count, with a tile more
inline constexpr int64_t kPortableMostSourceBytes = int64_t{2} << 30;  // of one image, if it takes more than usual

// Channels, taps and phases that 32 bits hold, whatever is made of them.
inline bool portable_can_count(const ConvTProblem& problem) {
  constexpr int64_t kMost = 1 << 24;
  const auto counts = [](const Axis& axis) { return axis.kernel <= 1 << 10 && axis.stride <= 1 << 10; };
  return problem.batch < kMost && problem.c_in < kMost && problem.c_out < kMost && counts(problem.h) &&
         counts(problem.w);
}

// Whether bytes of the packed tensor can be counted, if it is packed.
inline bool can_be_packed(const ConvTProblem& problem, const PortablePixels& pixels) {
  const double pixel = static_cast<double>(packed_pixel(problem, pixels)) * element_bytes(problem.dtype);
  return pixel * pixels.rows * pixels.columns <= static_cast<double>(kPortableMostSourceBytes);
}

// Two CTAs share an SM: their stages fill half of its shared memory each.
inline int32_t portable_stages(const DeviceInfo& device, int32_t stage_bytes) {
  constexpr int32_t kMostStages = 5;
  const int32_t room = std::min(device.shared_per_block, device.shared_per_sm / 2 - kReservedPerBlock);
  return std::clamp(room / stage_bytes, 2, kMostStages);
}

// What a plan does, in all its launches.
struct PortableWork {
  double launches;  // of the kernel that multiplies
  double packs;  // launches of those that pack for it, and of what follows
  double products;  // of a CTA
  double efficiency;  // the part of the tensor cores' rate that its tile reaches
  double moved_bytes;  // beside the tensors, as if by copies
};

// No plan was measured on the GPUs that this engine is for.
inline void estimate_portable(const ConvTProblem& problem, const DeviceInfo& device, const PortableWork& work,
                              Plan* plan) {
  constexpr double kLaunch = 3, kResident = 2;  // microseconds; CTAs of an SM
  const double waves = std::ceil(static_cast<double>(plan->num_blocks) / (device.num_sms * kResident));
  const double cycles = work.products / (tensor_multiply_adds_per_cycle(device, problem.dtype) * work.efficiency);
  plan->compute_us = work.launches * waves * kResident * cycles / (device.clock_ghz * 1e3);
  const double bandwidth = device.copy_gb_per_s * 1e3;
  plan->memory_us = static_cast<double>(element_bytes(problem.dtype)) *
                    (input_elements(problem) + output_elements(problem)) / bandwidth;
  plan->estimate_us = kLaunch * (work.launches + work.packs) + work.moved_bytes / bandwidth +
                      std::max(plan->compute_us, plan->memory_us) + 0.3 * std::min(plan->compute_us, plan->memory_us);
}

}  // namespace convt
