#include "simt/instance.cuh"

CONVT_SIMT_INSTANCE(grad_input_f64_2x8)
CONVT_SIMT_INSTANCE(grad_input_f32_2x8)
CONVT_SIMT_INSTANCE(grad_input_f16_2x8)
CONVT_SIMT_INSTANCE(grad_input_bf16_2x8)
