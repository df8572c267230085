#include "window_sm90a/kernel.cuh"

CONVT_WINDOW_INSTANCES(CONVT_WINDOW_INSTANCE)
