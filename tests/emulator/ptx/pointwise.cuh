// Emulates kernels/ptx/pointwise.cuh.
#pragma once

#include <algorithm>
#include <cmath>

namespace convt::ptx {

inline float clamp(float value, float low, float high) {
  return value != value ? value : std::min(std::max(value, low), high);
}
inline float rough_tanh(float value) { return std::tanh(value); }
inline float rough_exp2(float value) { return std::exp2(value); }
inline float rough_log2(float value) { return std::log2(value); }
inline float rough_reciprocal(float value) { return 1.0f / value; }

}  // namespace convt::ptx
