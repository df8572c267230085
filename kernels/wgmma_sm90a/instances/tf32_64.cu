#include "wgmma_sm90a/instance.cuh"

CONVT_WGMMA_INSTANCE(tf32_64, kTf32, 64)
