// What a file of instances/ consists of.
#pragma once

#include "nhwc_sm90a/instances.h"
#include "nhwc_sm90a/kernel.cuh"
#include "pack/pack_weights.cuh"

#define CONVT_NHWC_INSTANCE(symbol, operand, blocks, block_n, steps)                 \
  convt::PackedKernel convt::nhwc_sm90a::symbol() {                                  \
    using Traits = element::ProductTraits<element::Operand::operand, block_n>;       \
    return {reinterpret_cast<const void*>(&pack::pack_weights<Traits>),              \
            reinterpret_cast<const void*>(&convolve<Shape<Traits, blocks, steps>>)}; \
  }
