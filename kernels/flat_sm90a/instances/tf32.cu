#include "flat_sm90a/kernel.cuh"

CONVT_FLAT_TF32(CONVT_FLAT_INSTANCE)
