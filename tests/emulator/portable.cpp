// Compiles the portable engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "portable/instances/convolve.cu"
