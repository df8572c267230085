#include "thin/depthwise_instance.cuh"

CONVT_THIN_DEPTHWISE_INSTANCE(ieee_bf16_k4s2)
