// Compiles the flat engine's kernels as host functions.
#include "emulator/kernels.h"
#include "flat_sm90a/instances/convolve.cu"
