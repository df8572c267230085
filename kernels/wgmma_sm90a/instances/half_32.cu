#include "wgmma_sm90a/instance.cuh"

CONVT_WGMMA_INSTANCE(f16_32, kFloat16, 32)
CONVT_WGMMA_INSTANCE(bf16_32, kBFloat16, 32)
