// Compiles the flat engine's kernels as host functions.
#include "emulator/kernels.h"
#include "hopper/kernel.cuh"

// All threads share the shared-memory arrays declared in functions.
#undef __shared__
#define __shared__ static

#include "flat_sm90a/instances/convolve.cu"
