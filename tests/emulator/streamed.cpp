// The streamed engine's kernels as host functions.
#include "streamed/instances/streamed.cu"

#include "emulator/kernels.h"
#include "streamed/instances/gather.cu"
