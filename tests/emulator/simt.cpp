// The simt engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "simt/instances/convolve_co2.cu"
#include "simt/instances/convolve_co8.cu"
#include "simt/instances/grad_weight.cu"
