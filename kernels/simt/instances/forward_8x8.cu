#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(ieee_f32_8x8)
