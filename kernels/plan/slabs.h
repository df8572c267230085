// Slabs: arrays of partial sums, as large as the weight, that reduce/ adds to its gradient.
// Must not know: torch, CUDA, any family.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

inline constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

// What `slabs` slabs take, or 2^60 where that is more than any memory.
inline int64_t slab_bytes(const ConvTProblem& problem, int64_t slabs) {
  constexpr int64_t kMostBytes = int64_t{1} << 60;
  const int64_t elements = weight_elements(problem), bytes = problem.dtype == DataType::kFloat64 ? 8 : 4;
  return slabs > kMostBytes / bytes / elements ? kMostBytes : slabs * elements * bytes;
}

}  // namespace convt
