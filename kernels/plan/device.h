// Parameters of a GPU that planning needs. They are an argument of every planning function and never global state, so
// that plans for any GPU can be computed and tested without one.
#pragma once

#include <algorithm>
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

// CTAs per SM: limited by shared memory, by the GPU, and by registers. `threads_of_registers`: threads of this kernel
// that the registers of an SM allow.
inline int64_t resident_blocks(const DeviceInfo& device, int32_t shared_bytes, int32_t threads,
                               int32_t threads_of_registers) {
  constexpr int64_t kMostBlocks = 32;
  return std::min({device.shared_per_sm / (int64_t{shared_bytes} + kReservedPerBlock),
                   int64_t{threads_of_registers / threads}, kMostBlocks});
}

// The shared memory of a CTA, in bytes, if an SM runs `blocks` of them.
inline int32_t shared_room(const DeviceInfo& device, int32_t blocks) {
  return std::min(device.shared_per_block, device.shared_per_sm / blocks - kReservedPerBlock);
}

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
