#include "thin/depthwise_instance.cuh"

CONVT_THIN_DEPTHWISE_INSTANCE(ieee_f16_k2s2)
