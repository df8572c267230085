// What a file of instances/ consists of.
#pragma once

#include "hopper/instance.cuh"
#include "nhwc_sm90a/instances.h"
#include "nhwc_sm90a/kernel.cuh"

#define CONVT_NHWC_INSTANCE(symbol, dtype, precision, blocks, block_n, k_steps) \
  CONVT_DEFINE_PACKED_KERNEL(nhwc_sm90a, symbol, dtype, precision, block_n, Shape<Traits, blocks, k_steps>)
