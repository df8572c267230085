#include "patch_sm90a/direct.cuh"
#include "patch_sm90a/kernel.cuh"
#include "patch_sm90a/runs.cuh"

CONVT_PATCH_F16(CONVT_PATCH_INSTANCE)
CONVT_PATCH_DIRECT_F16(CONVT_PATCH_DIRECT_INSTANCE)
CONVT_PATCH_RUNS_F16(CONVT_PATCH_RUNS_INSTANCE)
