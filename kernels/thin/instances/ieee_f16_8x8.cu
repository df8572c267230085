#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_f16_8x8)
