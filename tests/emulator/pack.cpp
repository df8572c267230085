// Compiles the kernels that pack operands as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "pack/instances/pack.cu"
#include "pack/weights_sm90a/weights.cu"
