// What a file of instances/ consists of.
#pragma once

#include "pack/pack_weights.cuh"
#include "strided_sm90a/instances.h"
#include "strided_sm90a/kernel.cuh"

#define CONVT_STRIDED_INSTANCE(symbol, operand, form, block_n, kernel, alternate)                             \
  convt::PackedKernel convt::strided_sm90a::symbol() {                                                        \
    using Instance = element::ProductTraits<element::Operand::operand, block_n>;                              \
    return {reinterpret_cast<const void*>(&pack::pack_weights<Instance>),                                     \
            reinterpret_cast<const void*>(&convolve<Shape<Instance, StridedForm::form, kernel, alternate>>)}; \
  }
