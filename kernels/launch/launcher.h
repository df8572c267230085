// Checks and look-ups shared by the engines' launchers. Must not know: torch, any family.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "launch/kernel.h"
#include "launch/launch.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// Tensors may have any alignment. Vector copies need an aligned address.
inline bool is_aligned(const void* address, int64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

// The epilogue program of a launch.
inline epilogue::Program steps_of(const Pointers& pointers) {
  return pointers.steps == nullptr ? epilogue::Program{} : *pointers.steps;
}

// Returns test(value), or true if the value lacks a member that the test's return type names.
template <typename Value, typename Test>
bool holds_if_known(const Value& value, Test test) {
  if constexpr (std::is_invocable_v<Test, const Value&>) {
    return test(value);
  } else {
    return true;
  }
}

// The row of `instances` at a tile's index. Throws std::runtime_error if that kernel does not compute the problem.
template <typename Instance, size_t kCount>
const Instance& instance_of(const Instance (&instances)[kCount], int32_t index, const ConvTProblem& problem,
                            const Plan& plan) {
  const auto is_direction = [&](const auto& row) -> decltype(row.direction == problem.direction) {
    return row.direction == problem.direction;
  };
  if (index < 0 || index >= static_cast<int32_t>(kCount) || instances[index].dtype != problem.dtype ||
      !holds_if_known(instances[index], is_direction)) {
    throw std::runtime_error("convt_ext: number " + std::to_string(index) + " of the kernels like " + plan.kernel +
                             " does not compute " + name_of(problem.direction) + " in " + name_of(problem.dtype));
  }
  return instances[index];
}

// Throws std::runtime_error if the layout recomputed from the problem and the tile differs from the plan in threads,
// shared memory or CTAs, as far as the layout has these members. `legal`: whether the layout exists.
template <typename Layout>
void check_layout(bool legal, const Layout& layout, const Plan& plan) {
  const auto threads = [&](const auto& of) -> decltype(of.threads == 0) { return of.threads == plan.threads; };
  const auto shared = [&](const auto& of) -> decltype(of.shared_bytes == 0) {
    return of.shared_bytes == plan.shared_bytes;
  };
  const auto blocks = [&](const auto& of) -> decltype(of.num_blocks == 0) { return of.num_blocks == plan.num_blocks; };
  if (!legal || !holds_if_known(layout, threads) || !holds_if_known(layout, shared) ||
      !holds_if_known(layout, blocks)) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
}

}  // namespace convt
