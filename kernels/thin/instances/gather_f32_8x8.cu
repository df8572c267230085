#include "thin/gather_instance.cuh"

CONVT_THIN_GATHER_INSTANCE(8x8)
