#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_f32_8x8)
CONVT_THIN_INSTANCE(ieee_f16_8x8)
CONVT_THIN_INSTANCE(ieee_bf16_8x8)
