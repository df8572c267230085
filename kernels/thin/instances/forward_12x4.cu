#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_f32_12x4)
CONVT_THIN_INSTANCE(ieee_f16_12x4)
CONVT_THIN_INSTANCE(ieee_bf16_12x4)
