// What a file of instances/ consists of.
#pragma once

#include "pack/pack_weights.cuh"
#include "wgmma_sm90a/instances.h"
#include "wgmma_sm90a/kernel.cuh"

#define CONVT_WGMMA_INSTANCE(symbol, operand, block_n)                    \
  convt::PackedKernel convt::wgmma_sm90a::symbol() {                      \
    using Instance = Traits<Operand::operand, block_n>;                   \
    return {reinterpret_cast<const void*>(&pack::pack_weights<Instance>), \
            reinterpret_cast<const void*>(&convolve<Instance>)};          \
  }
