// Compiled kernels by number: a plan's instance is a row of its engine's list (plan/*instances.h).
#pragma once

// Declares <engine>::kKernels in this file: functions in the order of the list, each of which returns the runtime's
// names of what an instance consists of, a `Symbols`.
#define CONVT_KERNEL_TABLE(engine, LIST, Symbols)                     \
  namespace engine {                                                  \
  namespace {                                                         \
  constexpr Symbols (*kKernels[])() = {LIST(CONVT_KERNEL_TABLE_ROW)}; \
  }                                                                   \
  }
#define CONVT_KERNEL_TABLE_ROW(symbol, ...) &symbol,
