// The emulator's twin of kernels/ptx/pointwise.cuh.
#pragma once

#include <algorithm>
#include <cmath>

namespace convt::ptx {

inline float clamp(float value, float low, float high) {
  return value != value ? value : std::min(std::max(value, low), high);
}
inline float rough_tanh(float value) { return std::tanh(value); }

}  // namespace convt::ptx
