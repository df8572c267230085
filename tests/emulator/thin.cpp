// The thin engine's kernels as host functions.
#include "emulator/kernels.h"

// clang-format off: the kernels follow the emulated device.
#include "thin/instances/forward.cu"
#include "thin/instances/grad_input.cu"
#include "thin/instances/grad_weight.cu"
#include "thin/instances/outer_weight.cu"
