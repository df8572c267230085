// The depthwise engine's kernels as host functions.
#include "emulator/kernels.h"
#include "depthwise/instances/channels_last.cu"
#include "depthwise/instances/nchw.cu"
