#include "flat_sm90a/kernel.cuh"

CONVT_FLAT_INSTANCES(CONVT_FLAT_INSTANCE)
