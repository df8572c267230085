#include "wgmma_sm90a/instance.cuh"

CONVT_WGMMA_INSTANCE(bf16_64, kBFloat16, 64)
