// The gather engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "gather/instances/gather.cu"
