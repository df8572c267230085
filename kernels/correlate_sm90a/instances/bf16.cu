#include "correlate_sm90a/kernel.cuh"

CONVT_CORRELATE_BF16(CONVT_CORRELATE_INSTANCE)
