// The mma engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "mma_sm90a/instances/grad_input.cu"
#include "mma_sm90a/instances/grad_weight.cu"
#include "mma_sm90a/instances/rows.cu"
