#include "upsample_sm90a/instance.cuh"

CONVT_UPSAMPLE_INSTANCE(tf32, kFloat32)
