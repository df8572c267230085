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

// Measured on the GPU itself: copy bandwidth and clock of docs/performance.md.
inline DeviceInfo h200() { return DeviceInfo{90, 132, 232448, 233472, 1.89, 4300.0}; }

}  // namespace convt
