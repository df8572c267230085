#include "patch_sm90a/runs_instance.cuh"

CONVT_PATCH_RUNS_INSTANCE(tf32_gather_runs_64, float, 64)
CONVT_PATCH_RUNS_INSTANCE(tf32_gather_runs_128, float, 128)
CONVT_PATCH_RUNS_INSTANCE(tf32_gather_runs_256, float, 256)
