#include "window_sm90a/kernel.cuh"

CONVT_WINDOW_TF32X3(CONVT_WINDOW_INSTANCE)
