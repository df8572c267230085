#include "rows_sm90a/window_kernel.cuh"

CONVT_WINDOW_INSTANCES(CONVT_WINDOW_INSTANCE)
