// The scatter engine's kernels as host functions.
#include "scatter_sm90a/instances/scatter.cu"

#include "emulator/kernels.h"
