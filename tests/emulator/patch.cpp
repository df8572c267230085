// Compiles the patch engine's kernels as host functions.
#include "emulator/kernels.h"
#include "patch_sm90a/instances/convolve.cu"
