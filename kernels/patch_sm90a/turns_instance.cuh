// What a file of instances/ consists of whose warpgroups multiply and store in turn.
#pragma once

#include "pack/pack_weights.cuh"
#include "patch_sm90a/instances.h"
#include "patch_sm90a/turns.cuh"

#define CONVT_PATCH_TURNS(symbol, operand)                                              \
  convt::PackedKernel convt::patch_sm90a::symbol() {                                    \
    using Instance = element::ProductTraits<element::Operand::operand, kPatchChannels>; \
    return {reinterpret_cast<const void*>(&pack::pack_weights<Instance>),               \
            reinterpret_cast<const void*>(&convolve_in_turn<TurnsShape<Instance>>)};    \
  }
