#include "nhwc_sm90a/kernel.cuh"

CONVT_NHWC_HALF(CONVT_NHWC_INSTANCE)
