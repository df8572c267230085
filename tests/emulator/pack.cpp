// Compiles the kernels that pack operands as host functions.
#include "flat_sm90a/instances/pack.cu"

#include "emulator/kernels.h"
#include "pack/instances/pixels.cu"
#include "pack/instances/rows.cu"
#include "pack/weights_sm90a/weights.cu"
