#include "window_sm90a/kernel.cuh"

CONVT_WINDOW_HALF(CONVT_WINDOW_INSTANCE)
