#include "scatter_sm90a/instance.cuh"

CONVT_SCATTER_INSTANCE(tf32_2x24, kFloat32, kTf32, 2, 24, false)
CONVT_SCATTER_INSTANCE(tf32_3x32, kFloat32, kTf32, 3, 32, false)
