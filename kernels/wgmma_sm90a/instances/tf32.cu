#include "wgmma_sm90a/kernel.cuh"

CONVT_WGMMA_TF32(CONVT_WGMMA_INSTANCE)
