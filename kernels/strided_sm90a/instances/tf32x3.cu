#include "strided_sm90a/kernel.cuh"

CONVT_STRIDED_TF32X3(CONVT_STRIDED_INSTANCE)
