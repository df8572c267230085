// What launches each family (plan/families.h): launch_<name>(), called by launch(), and what the launchers share.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "launch/kernel.h"
#include "launch/launch.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// Tensors may begin anywhere; copies of several elements may not.
inline bool is_aligned(const void* address, int64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

// The row of a list that a plan's tile names. Throws std::runtime_error where that kernel does not compute the problem.
template <typename Instance, size_t kCount>
const Instance& instance_of(const Instance (&instances)[kCount], int32_t index, const ConvTProblem& problem,
                            const Plan& plan) {
  bool serves = index >= 0 && index < static_cast<int32_t>(kCount) && instances[index].dtype == problem.dtype;
  if constexpr (requires(const Instance& instance) { instance.direction; }) {
    serves = serves && instances[index].direction == problem.direction;
  }
  if (!serves) {
    throw std::runtime_error("convt_ext: number " + std::to_string(index) + " of the kernels like " + plan.kernel +
                             " does not compute " + name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  return instances[index];
}

// Throws std::runtime_error where the layout that was made of the problem and the plan's tile is not the plan's.
// `legal`: whether there is such a layout.
template <typename Layout>
void check_layout(bool legal, const Layout& layout, const Plan& plan) {
  if constexpr (requires { layout.threads; }) legal = legal && layout.threads == plan.threads;
  if constexpr (requires { layout.shared_bytes; }) legal = legal && layout.shared_bytes == plan.shared_bytes;
  if constexpr (requires { layout.num_blocks; }) legal = legal && layout.num_blocks == plan.num_blocks;
  if (!legal) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
}

// `tile` is the plan's.
#define CONVT_ROW(Tile, name, ...)                                                                              \
  void launch_##name(const ConvTProblem& problem, const Plan& plan, const Tile& tile, const Pointers& pointers, \
                     cudaStream_t stream);
CONVT_FAMILIES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt
