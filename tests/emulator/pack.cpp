// Compiles the kernels that pack operands as host functions.
#include "emulator/kernels.h"
#include "hopper/kernel.cuh"
#include "pack/instances/pixels.cu"

// All threads share the shared-memory arrays declared in functions.
#undef __shared__
#define __shared__ static

#include "flat_sm90a/instances/pack.cu"
#include "pack/instances/rows.cu"
#include "pack/weights_sm90a/weights.cu"
