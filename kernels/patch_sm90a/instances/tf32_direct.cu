#include "patch_sm90a/direct_instance.cuh"

CONVT_PATCH_DIRECT_INSTANCE(tf32_direct_1, float, 1)
CONVT_PATCH_DIRECT_INSTANCE(tf32_direct_2, float, 2)
