#include "patch_sm90a/runs_instance.cuh"

CONVT_PATCH_RUNS_INSTANCE(f16_gather_runs_64, __half, 64)
CONVT_PATCH_RUNS_INSTANCE(bf16_gather_runs_64, __nv_bfloat16, 64)
CONVT_PATCH_RUNS_INSTANCE(f16_gather_runs_128, __half, 128)
CONVT_PATCH_RUNS_INSTANCE(bf16_gather_runs_128, __nv_bfloat16, 128)
CONVT_PATCH_RUNS_INSTANCE(f16_gather_runs_256, __half, 256)
CONVT_PATCH_RUNS_INSTANCE(bf16_gather_runs_256, __nv_bfloat16, 256)
