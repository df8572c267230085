#include "mma_sm90a/rows_instance.cuh"

CONVT_MMA_ROWS_INSTANCE(tf32_rows_48x32)
