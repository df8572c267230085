// The direct engine's kernels as host functions.
#include "emulator/kernels.h"
#include "direct/instances/direct.cu"
