// For engines whose instances.h is a macro list: defines the function of a row.
#pragma once

#include "hopper/kernel.cuh"
#include "plan/kernel_table.h"

// A row's convolution, which is a family's of some shape of `Traits`.
#define CONVT_DEFINE_CONVOLUTION(engine, symbol, dtype, precision, block_n, ...)                                   \
  const void* convt::engine::symbol() {                                                                            \
    using Traits =                                                                                                 \
        element::ProductTraits<element::operand_of(convt::DataType::dtype, convt::Precision::precision), block_n>; \
    return CONVT_KERNEL(hopper::convolve<Convolution<__VA_ARGS__>>);                                               \
  }
