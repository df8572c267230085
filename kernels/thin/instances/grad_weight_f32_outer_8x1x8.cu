#include "thin/outer_weight_instance.cuh"

CONVT_THIN_OUTER_WEIGHT_INSTANCE(grad_weight_f32_outer_8x1x8)
