// The scatter engine's kernels as host functions.
#include "emulator/kernels.h"
#include "scatter_sm90a/instances/scatter.cu"
