#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(grad_input_f32_8x8)
