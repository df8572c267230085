#include "scatter_sm90a/instance.cuh"

CONVT_SCATTER_INSTANCE(f16_pixels_2x24, kFloat16, kHalf, 2, 24, true)
CONVT_SCATTER_INSTANCE(bf16_pixels_2x24, kBFloat16, kHalf, 2, 24, true)
CONVT_SCATTER_INSTANCE(f16_pixels_2x40, kFloat16, kHalf, 2, 40, true)
CONVT_SCATTER_INSTANCE(bf16_pixels_2x40, kBFloat16, kHalf, 2, 40, true)
CONVT_SCATTER_INSTANCE(f16_pixels_3x32, kFloat16, kHalf, 3, 32, true)
CONVT_SCATTER_INSTANCE(bf16_pixels_3x32, kBFloat16, kHalf, 3, 32, true)
