#include "thin/instance.cuh"

CONVT_THIN_INSTANCE(ieee_f16_16x4)
