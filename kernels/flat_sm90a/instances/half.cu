#include "flat_sm90a/kernel.cuh"

CONVT_FLAT_HALF(CONVT_FLAT_INSTANCE)
