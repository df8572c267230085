// The streamed engine's kernels as host functions.
#include "emulator/kernels.h"
#include "streamed/instances/gather.cu"
#include "streamed/instances/streamed.cu"
