#include "scatter_sm90a/instance.cuh"

CONVT_SCATTER_INSTANCE(tf32x3_2x24, kFloat32, kTf32x3, 2, 24, false)
CONVT_SCATTER_INSTANCE(tf32x3_2x40, kFloat32, kTf32x3, 2, 40, false)
CONVT_SCATTER_INSTANCE(tf32x3_3x32, kFloat32, kTf32x3, 3, 32, false)
