#include "mma_sm90a/rows_instance.cuh"

CONVT_MMA_ROWS_INSTANCE(f16_rows_48x32)
CONVT_MMA_ROWS_INSTANCE(bf16_rows_48x32)
