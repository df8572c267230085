#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_f32_4x16)
CONVT_THIN_INSTANCE(ieee_f16_4x16)
CONVT_THIN_INSTANCE(ieee_bf16_4x16)
