#include "nhwc_sm90a/instance.cuh"

CONVT_NHWC_TF32(CONVT_NHWC_INSTANCE)
