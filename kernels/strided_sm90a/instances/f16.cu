#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(f16_output_64, kFloat16, kOutput, 64)
CONVT_STRIDED_INSTANCE(f16_gather_128, kFloat16, kGather, 128)
CONVT_STRIDED_INSTANCE(f16_gather_64, kFloat16, kGather, 64)
