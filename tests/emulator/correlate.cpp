// The correlate engine's kernels as host functions.
#include "emulator/kernels.h"
#include "hopper/kernel.cuh"

// Arrays of shared memory inside of functions are one for all threads.
#undef __shared__
#define __shared__ static

#include "correlate_sm90a/instances/bf16.cu"
#include "correlate_sm90a/instances/bf16_pixels.cu"
#include "correlate_sm90a/instances/f16.cu"
#include "correlate_sm90a/instances/f16_pixels.cu"
#include "correlate_sm90a/instances/tf32.cu"
#include "correlate_sm90a/instances/tf32_pixels.cu"
#include "pack/instances/rows.cu"
