// The numbers of a GPU that planning needs. An argument of every planning function, never global
// state, so that the plan for any GPU can be computed and tested on a machine without one.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

struct DeviceInfo {
  int32_t compute_capability;  // 10 * major + minor
  int32_t num_sms;
  int32_t shared_per_block;  // bytes, with opt-in
  int32_t shared_per_sm;     // bytes
  double clock_ghz;          // under load
  double copy_gb_per_s;      // device to device, bytes read + written
};

inline constexpr int32_t kReservedPerBlock = 1024;  // bytes of shared memory that CUDA keeps of every CTA

// Multiply-adds of one SM and cycle.
inline double multiply_adds_per_cycle(const DeviceInfo& device, bool float64) {
  if (!float64) return 128;
  switch (device.compute_capability) {
    case 80: return 32;
    case 90:
    case 100: return 64;
    default: return 2;
  }
}

// Multiply-adds of one SM and cycle by matrix products of warps (mma.sync) with float32 sums: of halves, or of TF32 at
// half that rate. From the makers' peak rates; of 9.0 as measured, where products of warpgroups are 1.6 times as fast.
inline double warp_multiply_adds_per_cycle(const DeviceInfo& device, DataType dtype) {
  const double of_halves = device.compute_capability == 80 || device.compute_capability == 100 ? 1024
                           : device.compute_capability == 90                                   ? 800
                                                                                               : 512;
  return dtype == DataType::kFloat32 ? of_halves / 2 : of_halves;
}

// Whether this binary has the kernels that exist in code for 9.0a alone, and the GPU runs them.
bool has_hopper_kernels(const DeviceInfo& device);

// Measured on the GPU itself: copy bandwidth and clock.
inline DeviceInfo h200() { return DeviceInfo{90, 132, 232448, 233472, 1.89, 4300.0}; }

}  // namespace convt
