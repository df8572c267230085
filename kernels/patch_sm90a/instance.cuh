// What a file of instances/ consists of.
#pragma once

#include "pack/pack_weights.cuh"
#include "patch_sm90a/instances.h"
#include "patch_sm90a/kernel.cuh"

#define CONVT_PATCH_INSTANCE(symbol, operand, form, blocks, consumers)                                      \
  convt::PackedKernel convt::patch_sm90a::symbol() {                                                        \
    using Instance = element::ProductTraits<element::Operand::operand, kPatchChannels>;                     \
    return {reinterpret_cast<const void*>(&pack::pack_weights<Instance>),                                   \
            reinterpret_cast<const void*>(&convolve<Shape<Instance, PatchForm::form, blocks, consumers>>)}; \
  }
