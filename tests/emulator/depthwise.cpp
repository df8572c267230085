// The depthwise engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "depthwise/instances/channels_last.cu"
#include "depthwise/instances/nchw.cu"
