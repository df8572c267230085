#include "thin/depthwise_instance.cuh"

CONVT_THIN_DEPTHWISE_INSTANCE(grad_weight_f32_k2s2)
