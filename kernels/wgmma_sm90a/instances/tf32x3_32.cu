#include "wgmma_sm90a/instance.cuh"

CONVT_WGMMA_INSTANCE(tf32x3_32, kTf32x3, 32)
