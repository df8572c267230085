// What the portable engine's planners share: how large a problem may be, how many stages an SM has room for, and how
// long a plan takes.
// Must not know: torch, CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pack/pixels.h"
#include "plan/cost.h"
#include "plan/device.h"
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
inline bool can_be_packed(const ConvTProblem& problem, const Pixels& pixels) {
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
  double others;  // launches of what packs for it, and of what follows
  double products;  // of a CTA
  double moved_bytes;  // beside the tensors
};

// How fast a kernel does it. Fitted on an H100 to the layers of benchmarks/unseen_fitting.csv in TF32 and bfloat16,
// both layouts, for the least error of the logarithm: 18 to 20 % of those of unseen_validation.csv. On other GPUs their
// own rates stand beside the same numbers, which nobody has measured there.
struct PortableSpeed {
  double efficiency;  // the part of the rate of mma.sync that its tile reaches
  double launch_us;
  double start_us;  // of the CTAs that an SM holds: before their first products, and after their last
  double moved;  // how long moved bytes take, over a copy
  double overlap;  // the part of the shorter of products and tensors that the longer one does not hide
};

inline void estimate_portable(const ConvTProblem& problem, const DeviceInfo& device, const PortableWork& work,
                              const PortableSpeed& speed, Plan* plan) {
  constexpr int64_t kResident = 2;  // CTAs of an SM
  constexpr double kAlone = 0.7;  // the time of a CTA that has an SM for itself, over that of two
  const int64_t in_a_wave = kResident * device.num_sms, rest = plan->num_blocks % in_a_wave;
  const double rate = warp_multiply_adds_per_cycle(device, problem.dtype) * speed.efficiency;
  const double wave_us = kResident * work.products / rate / (device.clock_ghz * 1e3) + speed.start_us;
  const double last = rest == 0 ? 0 : rest <= device.num_sms ? kAlone : 1;
  plan->compute_us = work.launches * wave_us * (static_cast<double>(plan->num_blocks / in_a_wave) + last);
  const double bandwidth = device.copy_gb_per_s * 1e3;
  plan->memory_us = static_cast<double>(element_bytes(problem.dtype)) *
                    (input_elements(problem) + output_elements(problem)) / bandwidth;
  plan->estimate_us = speed.launch_us * (work.launches + work.others) + speed.moved * work.moved_bytes / bandwidth +
                      std::max(plan->compute_us, plan->memory_us) +
                      speed.overlap * std::min(plan->compute_us, plan->memory_us);
}

}  // namespace convt
