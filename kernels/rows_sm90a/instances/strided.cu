#include "rows_sm90a/strided_kernel.cuh"

CONVT_STRIDED_INSTANCES(CONVT_STRIDED_INSTANCE)
