// The gradient of the weight of small layers: a CTA adds up the pixels for a few neighbouring taps, straight from
// global memory. One definition for the planner, launch/ and the kernel (direct/weight.cuh).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/device.h"
#include "plan/divisor.h"
#include "problem/problem.h"

namespace convt {

struct Plan;

inline constexpr int32_t kMostDirectWeightThreads = 512;  // of a CTA
inline constexpr int32_t kDirectWeightTaps = 4;   // neighbours in a row, which a CTA adds up
inline constexpr int32_t kDirectWeightBatch = 4;  // pixels that a thread reads at once

struct ThinDirectWeightLayout {
  Axis h, w;
  // Elements from one image, channel, row, column to the next.
  int32_t x_stride[4];
  int32_t gy_stride[4];
  int64_t weight_stride[4];  // from one input channel, output channel of the group, kh, kw to the next
  int32_t group_ci;
  int32_t pixels;  // of the input, all images
  // A CTA's number is (input channel, output channel of the group, tap row, run of taps), the last one fastest.
  Divisor by_runs, by_kernel_h, by_group_co, by_group_ci;
  Divisor by_columns, by_rows;  // a pixel's number: image, row, column
  int64_t num_blocks;
};

// False where 32 bits do not hold the numbers.
bool make_thin_direct_weight_layout(const ConvTProblem& problem, ThinDirectWeightLayout* layout);

// Called by add_thin_direct_plans(): plan/families.h.
void add_thin_direct_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

}  // namespace convt
