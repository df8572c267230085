#include "mma_sm90a/instance.cuh"

CONVT_MMA_INSTANCE(tf32_48x32)
CONVT_MMA_INSTANCE(tf32_16x64)
