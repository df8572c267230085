#include "strided_sm90a/kernel.cuh"

CONVT_STRIDED_TF32(CONVT_STRIDED_INSTANCE)
