// The streamed engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "streamed/instances/gather.cu"
#include "streamed/instances/streamed.cu"
