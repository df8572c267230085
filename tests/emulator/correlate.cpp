// Compiles the correlate engine's kernels as host functions.
#include "emulator/kernels.h"
#include "hopper/kernel.cuh"

// All threads share the shared-memory arrays declared in functions.
#undef __shared__
#define __shared__ static

#include "correlate_sm90a/instances/pixels.cu"
#include "correlate_sm90a/instances/rows.cu"
