#include "simt/grad_weight_instance.cuh"

CONVT_GRAD_WEIGHT_INSTANCE(grad_weight_f64_4x2x3)
