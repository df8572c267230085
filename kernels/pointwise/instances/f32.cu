#include "pointwise/kernel.cuh"

CONVT_DEFINE_KERNEL(pointwise, ieee_f32_thread, convt::pointwise::convolve)
