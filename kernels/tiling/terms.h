// Layout of kernels that read the terms of a result from global memory: strides, phases and sizes. Called by: layouts
// of direct/ and streamed/.
#pragma once

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

inline constexpr int32_t kMaxTermPhases = 8;  // per axis

// The forward pass and, as its adjoint problem, the gradient of the input.
struct TermsLayout {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int32_t weight_stride[4];  // strides of summed channel, result channel, kh, kw
  int64_t weight_group_stride;
  Phase phases_h[kMaxTermPhases];
  Phase phases_w[kMaxTermPhases];
  int32_t rows, columns;  // of the source
  int32_t row_step, column_step;  // source coordinates per position
  int32_t group_ci;  // summed channels
  int32_t terms;  // per result, at most
  int32_t results;
  bool channels_last;  // channels (otherwise columns) are the fastest digit of a result's index
  FastDivmod by_digits[3];
  FastDivmod by_phases_h, by_phases_w, by_group_co;
  int64_t num_blocks;  // set by each engine
};

// Sets everything except num_blocks. Returns false if there are too many phases, or if 32 bits cannot represent the
// values.
bool make_terms_layout(const ConvTProblem& problem, TermsLayout* layout);

}  // namespace convt
