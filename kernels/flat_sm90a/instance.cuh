// What a file of instances/ consists of.
#pragma once

#include "flat_sm90a/instances.h"
#include "flat_sm90a/kernel.cuh"
#include "flat_sm90a/pack.cuh"

#define CONVT_FLAT_INSTANCE(symbol, operand, phases, consumers, columns)                                               \
  convt::PackedKernel convt::flat_sm90a::symbol() {                                                                    \
    using Instance = element::ProductTraits<element::Operand::operand, 64>;                                            \
    using Tiles = Shape<Instance, phases, consumers, columns>;                                                         \
    return {reinterpret_cast<const void*>(&pack_operands<Instance>), reinterpret_cast<const void*>(&convolve<Tiles>)}; \
  }
