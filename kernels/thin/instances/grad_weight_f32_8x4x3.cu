#include "thin/grad_weight_instance.cuh"

CONVT_THIN_GRAD_WEIGHT_INSTANCE(grad_weight_f32_8x4x3)
