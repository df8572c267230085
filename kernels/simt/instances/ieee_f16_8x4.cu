#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(ieee_f16_8x4)
