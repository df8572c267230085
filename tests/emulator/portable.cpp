// The portable engine's kernels as host functions.
#include "emulator/kernels.h"
#include "pack/instances/pixels.cu"
#include "portable/instance.cuh"
#include "portable/instances/bf16.cu"
#include "portable/instances/f16.cu"
#include "portable/instances/pack.cu"
#include "portable/instances/tf32.cu"
