#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(aten_f32_2x8)
