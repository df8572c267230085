#include "scatter_sm90a/instance.cuh"

CONVT_SCATTER_INSTANCE(tf32_pixels_2x24, kFloat32, kTf32, 2, 24, true)
CONVT_SCATTER_INSTANCE(tf32_pixels_2x40, kFloat32, kTf32, 2, 40, true)
CONVT_SCATTER_INSTANCE(tf32_pixels_3x32, kFloat32, kTf32, 3, 32, true)
