// Compiles the correlate engine's kernels as host functions.
#include "emulator/kernels.h"
#include "correlate_sm90a/instances/pixels.cu"
#include "correlate_sm90a/instances/rows.cu"
