// Compiles the correlate engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "correlate_sm90a/instances/pixels.cu"
#include "correlate_sm90a/instances/rows.cu"
