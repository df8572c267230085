// Compiles the correlate engine's kernels as host functions.
#include "correlate_sm90a/instances/pixels.cu"
#include "correlate_sm90a/instances/rows.cu"
#include "emulator/kernels.h"
