#include "nhwc_sm90a/kernel.cuh"

CONVT_NHWC_TF32X3(CONVT_NHWC_INSTANCE)
