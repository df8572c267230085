#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(ieee_f64_8x4)
