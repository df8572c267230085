#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(grad_input_f16_8x4)
