#include "mma_sm90a/instance.cuh"

CONVT_MMA_INSTANCE(bf16_48x32)
CONVT_MMA_INSTANCE(bf16_16x64)
