#include "wgmma_sm90a/instance.cuh"

CONVT_WGMMA_INSTANCE(f16_64, kFloat16, 64)
CONVT_WGMMA_INSTANCE(bf16_64, kBFloat16, 64)
