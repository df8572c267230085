// Compiles the rows engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "rows_sm90a/instances/strided.cu"
#include "rows_sm90a/instances/window.cu"
