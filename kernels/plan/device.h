// Parameters of a GPU that planning needs. They are an argument of every planning function and never global state, so
// that plans for any GPU can be computed and tested without one.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

struct DeviceInfo {
  int32_t compute_capability;  // 10 * major + minor
  int32_t num_sms;
  int32_t shared_per_block;  // bytes, opt-in limit
  int32_t shared_per_sm;     // bytes
  double clock_ghz;          // under load
  double copy_gb_per_s;      // device to device, counting bytes read and written
};

inline constexpr int32_t kReservedPerBlock = 1024;  // bytes of shared memory that CUDA reserves per CTA

// Multiply-adds per SM and cycle on CUDA cores.
inline double multiply_adds_per_cycle(const DeviceInfo& device, bool float64) {
  if (!float64) return 128;
  switch (device.compute_capability) {
    case 80: return 32;
    case 90:
    case 100: return 64;
    default: return 2;
  }
}

// Multiply-adds per SM and cycle of mma.sync with float32 accumulators: half precision, or TF32 at half that rate. From
// vendor peak rates, except 9.0, which is measured; wgmma is 1.6 times as fast there.
inline double warp_multiply_adds_per_cycle(const DeviceInfo& device, DataType dtype) {
  const double of_halves = device.compute_capability == 80 || device.compute_capability == 100 ? 1024
                           : device.compute_capability == 90                                   ? 800
                                                                                               : 512;
  return dtype == DataType::kFloat32 ? of_halves / 2 : of_halves;
}

// Whether this binary contains the kernels for 9.0a and the GPU runs them.
bool has_hopper_kernels(const DeviceInfo& device);

// Reference GPU. Copy bandwidth and clock are measured.
inline DeviceInfo h200() { return DeviceInfo{90, 132, 232448, 233472, 1.89, 4300.0}; }

}  // namespace convt
