// Shared by the lists of compiled kernels (<engine>/instances.h). A plan's instance is the index of a row.
// Must not know: torch, CUDA, any family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace convt {

template <typename Row, size_t kCount>
constexpr int32_t count_of(const Row (&)[kCount]) {
  return static_cast<int32_t>(kCount);
}

// A row as a compile-time constant, so that row->dtype can be a template argument.
template <const auto& kRows, int32_t kIndex>
struct RowConstant {
  constexpr const auto* operator->() const { return &kRows[kIndex]; }
  constexpr const auto& operator*() const { return kRows[kIndex]; }
};

template <const auto& kRows, int32_t kIndex, typename KernelOf>
const void* kernel_of_row(KernelOf kernel_of) {
  return kernel_of(RowConstant<kRows, kIndex>{});
}

template <const auto& kRows, typename KernelOf, int32_t... kIndices>
const void* find_kernel(int32_t instance, KernelOf kernel_of, std::integer_sequence<int32_t, kIndices...>) {
  static constexpr const void* (*kKernels[])(KernelOf) = {&kernel_of_row<kRows, kIndices, KernelOf>...};
  return kKernels[instance](kernel_of);
}

// Returns the kernel of row `instance`. kernel_of(row) is compiled for every row, with a RowConstant. It returns
// CONVT_KERNEL(...), or nullptr for a row that another file compiles.
template <const auto& kRows, typename KernelOf>
const void* find_kernel(int32_t instance, KernelOf kernel_of) {
  return find_kernel<kRows>(instance, kernel_of, std::make_integer_sequence<int32_t, count_of(kRows)>{});
}

}  // namespace convt

// The address of a __global__ function, for launch_kernel(). The emulator in tests/ defines its own macro.
#ifndef CONVT_KERNEL
#define CONVT_KERNEL(...) reinterpret_cast<const void*>(&__VA_ARGS__)
#endif
