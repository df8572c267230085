#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(grad_input_bf16_2x8)
