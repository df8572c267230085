#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_bf16_8x8)
