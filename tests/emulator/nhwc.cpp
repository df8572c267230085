// Compiles the NHWC engine's kernels as host functions.
#include "emulator/kernels.h"
#include "nhwc_sm90a/instances/convolve.cu"
