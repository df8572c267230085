#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(ieee_bf16_2x8)
