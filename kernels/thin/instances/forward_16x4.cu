#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_f32_16x4)
CONVT_THIN_INSTANCE(ieee_f16_16x4)
CONVT_THIN_INSTANCE(ieee_bf16_16x4)
