#include "correlate_sm90a/kernel.cuh"

CONVT_CORRELATE_F16(CONVT_CORRELATE_INSTANCE)
