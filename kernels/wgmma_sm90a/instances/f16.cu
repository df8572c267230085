#include "wgmma_sm90a/kernel.cuh"

CONVT_WGMMA_F16(CONVT_WGMMA_INSTANCE)
