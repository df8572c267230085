#include "nhwc_sm90a/instance.cuh"

CONVT_NHWC_HALF(CONVT_NHWC_INSTANCE)
