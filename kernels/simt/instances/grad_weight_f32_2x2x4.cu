#include "simt/grad_weight_instance.cuh"

CONVT_GRAD_WEIGHT_INSTANCE(grad_weight_f32_2x2x4)
