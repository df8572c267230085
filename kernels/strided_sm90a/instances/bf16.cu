#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(bf16_output_64, kBFloat16, kOutput, 64)
CONVT_STRIDED_INSTANCE(bf16_gather_128, kBFloat16, kGather, 128)
CONVT_STRIDED_INSTANCE(bf16_gather_64, kBFloat16, kGather, 64)
