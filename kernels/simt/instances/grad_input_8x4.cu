#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(grad_input_f64_8x4)
CONVT_SIMT_INSTANCE(grad_input_f32_8x4)
CONVT_SIMT_INSTANCE(grad_input_f16_8x4)
CONVT_SIMT_INSTANCE(grad_input_bf16_8x4)
