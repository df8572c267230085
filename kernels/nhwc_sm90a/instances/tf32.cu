#include "nhwc_sm90a/kernel.cuh"

CONVT_NHWC_TF32(CONVT_NHWC_INSTANCE)
