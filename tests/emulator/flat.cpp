// Compiles the flat engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "flat_sm90a/instances/convolve.cu"
