// Compiles the portable engine's kernels as host functions.
#include "emulator/kernels.h"
#include "portable/instances/convolve.cu"
#include "portable/instances/pack.cu"
