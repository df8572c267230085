#include "strided_sm90a/kernel.cuh"

CONVT_STRIDED_HALF(CONVT_STRIDED_INSTANCE)
