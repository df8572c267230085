#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(tf32_output_64, kTf32, kOutput, 64)
CONVT_STRIDED_INSTANCE(tf32_gather_128, kTf32, kGather, 128)
CONVT_STRIDED_INSTANCE(tf32_gather_64, kTf32, kGather, 64)
