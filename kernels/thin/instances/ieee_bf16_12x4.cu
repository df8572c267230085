#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_bf16_12x4)
