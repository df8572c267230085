// The numbers of a GPU that planning needs. An argument of every planning function, never global
// state, so that the plan for any GPU can be computed and tested on a machine without one.
#pragma once

#include <cstdint>

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

// Measured on the GPU itself: copy bandwidth and clock of docs/performance.md.
inline DeviceInfo h200() { return DeviceInfo{90, 132, 232448, 233472, 1.89, 4300.0}; }

}  // namespace convt
