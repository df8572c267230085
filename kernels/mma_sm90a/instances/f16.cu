#include "mma_sm90a/instance.cuh"

CONVT_MMA_INSTANCE(f16_48x32)
CONVT_MMA_INSTANCE(f16_16x64)
