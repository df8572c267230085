// What all lists of compiled kernels (<engine>/instances.h) share. A plan's instance is the number of a row.
// Must not know: torch, CUDA, any family.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convt {

template <typename Row, size_t kCount>
constexpr int32_t count_of(const Row (&)[kCount]) {
  return static_cast<int32_t>(kCount);
}

}  // namespace convt

// For a list of rows: functions that return the kernel of an instance as the runtime takes it.
#define CONVT_DECLARE_KERNEL(symbol, ...) const void* symbol();

// A kernel, which is a __global__ function, as the runtime takes it. Where tests run kernels without one, it is theirs.
#ifndef CONVT_KERNEL
#define CONVT_KERNEL(...) reinterpret_cast<const void*>(&__VA_ARGS__)
#endif

// The function of a row whose kernel is the last argument.
#define CONVT_DEFINE_KERNEL(engine, symbol, ...) \
  const void* convt::engine::symbol() { return CONVT_KERNEL(__VA_ARGS__); }

// For a list that takes a macro for each file of instances/, so that rows of different files can alternate in the order
// of the plans: what one file makes of the rows of the others.
#define CONVT_NO_ROW(...)

// Declares <engine>::kKernels in this file: functions in the order of the list, which return the kernels. A file with
// several lists names each table.
#define CONVT_KERNEL_TABLE(engine, LIST) CONVT_NAMED_KERNEL_TABLE(engine, kKernels, LIST)
#define CONVT_NAMED_KERNEL_TABLE(engine, kName, LIST)                  \
  namespace engine {                                                   \
  namespace {                                                          \
  constexpr const void* (*kName[])() = {LIST(CONVT_KERNEL_TABLE_ROW)}; \
  }                                                                    \
  }
#define CONVT_KERNEL_TABLE_ROW(symbol, ...) &symbol,
