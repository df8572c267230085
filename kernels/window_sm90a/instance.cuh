// What a file of instances/ consists of.
#pragma once

#include "pack/pack_weights.cuh"
#include "window_sm90a/instances.h"
#include "window_sm90a/kernel.cuh"

#define CONVT_WINDOW_INSTANCE(symbol, operand, block_n, kernel_w)               \
  convt::PackedKernel convt::window_sm90a::symbol() {                           \
    using Traits = element::ProductTraits<element::Operand::operand, block_n>;  \
    return {reinterpret_cast<const void*>(&pack::pack_weights<Traits>),         \
            reinterpret_cast<const void*>(&convolve<Shape<Traits, kernel_w>>)}; \
  }
