#include "scatter_sm90a/instance.cuh"

CONVT_SCATTER_INSTANCE(f16_2x24, kFloat16, kHalf, 2, 24, false)
CONVT_SCATTER_INSTANCE(bf16_2x24, kBFloat16, kHalf, 2, 24, false)
CONVT_SCATTER_INSTANCE(f16_3x32, kFloat16, kHalf, 3, 32, false)
CONVT_SCATTER_INSTANCE(bf16_3x32, kBFloat16, kHalf, 3, 32, false)
