// Compiles the kernels that pack operands as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "flat_sm90a/instances/pack.cu"
#include "pack/instances/pixels.cu"
#include "pack/instances/rows.cu"
#include "pack/weights_sm90a/weights.cu"
