#include "thin/grad_input_instance.cuh"

CONVT_THIN_GRAD_INPUT_INSTANCE(grad_input_f32_1x16)
