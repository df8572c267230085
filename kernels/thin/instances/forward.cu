#include "thin/kernel.cuh"

CONVT_THIN_INSTANCES(CONVT_THIN_INSTANCE)
