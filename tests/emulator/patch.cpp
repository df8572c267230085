// Compiles the patch engine's kernels as host functions.
#include "emulator/kernels.h"
#include "hopper/kernel.cuh"
#include "patch_sm90a/direct.cuh"
#include "patch_sm90a/runs.cuh"

// All threads share the shared-memory arrays declared in functions.
#undef __shared__
#define __shared__ static

#include "patch_sm90a/instances/convolve.cu"
