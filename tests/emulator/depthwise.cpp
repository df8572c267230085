// The depthwise engine's kernels as host functions.
#include "depthwise/instances/channels_last.cu"
#include "depthwise/instances/nchw.cu"
#include "emulator/kernels.h"
