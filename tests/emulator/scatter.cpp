// The scatter engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "scatter_sm90a/instances/scatter.cu"
