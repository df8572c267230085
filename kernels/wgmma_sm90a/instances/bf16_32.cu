#include "wgmma_sm90a/instance.cuh"

CONVT_WGMMA_INSTANCE(bf16_32, kBFloat16, 32)
