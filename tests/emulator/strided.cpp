// The strided engine's kernels as host functions.
#include "emulator/kernels.h"
#include "hopper/kernel.cuh"

// Arrays of shared memory inside of functions are one for all threads.
#undef __shared__
#define __shared__ static

#include "rows_sm90a/instances/strided.cu"
