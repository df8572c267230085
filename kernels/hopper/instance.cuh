// What the files of instances/ consist of: the kernels of the rows of a list.
#pragma once

#include "hopper/kernel.cuh"
#include "pack/pack_weights.cuh"
#include "plan/kernel_table.h"

// A row's convolution, which is a family's of some shape, and the kernel that packs its weights in columns of
// `block_n`.
#define CONVT_DEFINE_PACKED_KERNEL(engine, symbol, dtype, precision, block_n, ...)                                 \
  convt::PackedKernel convt::engine::symbol() {                                                                    \
    using Traits =                                                                                                 \
        element::ProductTraits<element::operand_of(convt::DataType::dtype, convt::Precision::precision), block_n>; \
    return {CONVT_KERNEL(pack::pack_weights<Traits>), CONVT_KERNEL(hopper::convolve<Convolution<__VA_ARGS__>>)};   \
  }
