#include "wgmma_sm90a/instance.cuh"

CONVT_WGMMA_INSTANCE(tf32_32, kTf32, 32)
