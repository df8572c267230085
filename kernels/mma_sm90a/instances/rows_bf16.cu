#include "mma_sm90a/rows_instance.cuh"

CONVT_MMA_ROWS_INSTANCE(bf16_rows_48x32)
