#include "correlate_sm90a/kernel.cuh"

CONVT_CORRELATE_TF32(CONVT_CORRELATE_INSTANCE)
