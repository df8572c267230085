// Shared by the portable planners: problem limits, the number of pipeline stages, and the cost model.
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
    (int64_t{1} << 31) - (int64_t{1} << 12);  // limit of counts in kernels, with room for one tile
inline constexpr int64_t kPortableMostSourceBytes = int64_t{2} << 30;  // per image, if it is packed

// Whether 32 bits can represent channels, taps and phases, and values derived from them.
inline bool portable_can_count(const ConvTProblem& problem) {
  constexpr int64_t kMost = 1 << 24;
  const auto counts = [](const Axis& axis) { return axis.kernel <= 1 << 10 && axis.stride <= 1 << 10; };
  return problem.batch < kMost && problem.c_in < kMost && problem.c_out < kMost && counts(problem.h) &&
         counts(problem.w);
}

// Whether the size of the packed tensor is within the limit.
inline bool can_be_packed(const ConvTProblem& problem, const Pixels& pixels) {
  const double pixel = static_cast<double>(packed_pixel(problem, pixels)) * element_bytes(problem.dtype);
  return pixel * pixels.rows * pixels.columns <= static_cast<double>(kPortableMostSourceBytes);
}

// Two CTAs share an SM. The stages of each fill half of its shared memory.
inline int32_t portable_stages(const DeviceInfo& device, int32_t stage_bytes) {
  constexpr int32_t kMostStages = 5;
  return std::clamp(shared_room(device, 2) / stage_bytes, 2, kMostStages);
}

// Work of a plan, over all its launches.
struct PortableWork {
  double launches;  // of the main kernel
  double others;  // of packing kernels and of kernels that follow
  double products;  // multiply-adds per CTA
  double moved_bytes;  // in addition to the tensors
};

// Speed of a kernel. Fitted on an H100 to the layers of benchmarks/unseen_fitting.csv in TF32 and bfloat16, both
// layouts, by least error of the logarithm. The error on unseen_validation.csv is 18 to 20 %. Other GPUs use their own
// rates with the same constants, which are not measured there.
struct PortableSpeed {
  double efficiency;  // fraction of the mma.sync rate
  double launch_us;
  double start_us;  // overhead of the CTAs of an SM before their first and after their last products
  double moved;  // time of moved bytes, relative to a copy
  double overlap;  // fraction of the shorter of products and tensors that is not hidden
};

inline void estimate_portable(const ConvTProblem& problem, const DeviceInfo& device, const PortableWork& work,
                              const PortableSpeed& speed, Plan* plan) {
  constexpr int64_t kResident = 2;  // CTAs per SM
  constexpr double kAlone = 0.7;  // time of a CTA with an SM of its own, relative to two CTAs
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
