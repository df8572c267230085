#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(ieee_bf16_8x4)
