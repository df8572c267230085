#include "patch_sm90a/kernel.cuh"

CONVT_PATCH_TF32X3(CONVT_PATCH_INSTANCE)
