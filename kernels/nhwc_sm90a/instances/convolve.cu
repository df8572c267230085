#include "nhwc_sm90a/kernel.cuh"

CONVT_NHWC_INSTANCES(CONVT_NHWC_INSTANCE)
