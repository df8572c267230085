#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_f32_8x8)
