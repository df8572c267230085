#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(bf16_output_64, kBFloat16, kOutput, 64, 4)
CONVT_STRIDED_INSTANCE(bf16_gather_128, kBFloat16, kGather, 128, 4)
CONVT_STRIDED_INSTANCE(bf16_gather_64, kBFloat16, kGather, 64, 4)
CONVT_STRIDED_INSTANCE(bf16_output_k3_32, kBFloat16, kOutput, 32, 3)
CONVT_STRIDED_INSTANCE(bf16_gather_k3_128, kBFloat16, kGather, 128, 3)
CONVT_STRIDED_INSTANCE(bf16_gather_k3_64, kBFloat16, kGather, 64, 3)
