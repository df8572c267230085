// The direct engine's kernels as host functions.
#include "direct/instances/direct.cu"

#include "emulator/kernels.h"
