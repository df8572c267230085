#include "thin/grad_weight_instance.cuh"

CONVT_THIN_GRAD_WEIGHT_INSTANCE(grad_weight_bf16_8x1x9)
