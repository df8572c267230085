#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(bf16_output_64, kBFloat16, kOutput, 64, 4, false)
CONVT_STRIDED_INSTANCE(bf16_gather_128, kBFloat16, kGather, 128, 4, false)
CONVT_STRIDED_INSTANCE(bf16_gather_64, kBFloat16, kGather, 64, 4, false)
CONVT_STRIDED_INSTANCE(bf16_output_k3_32, kBFloat16, kOutput, 32, 3, false)
CONVT_STRIDED_INSTANCE(bf16_gather_k3_128, kBFloat16, kGather, 128, 3, false)
CONVT_STRIDED_INSTANCE(bf16_gather_k3_64, kBFloat16, kGather, 64, 3, false)
CONVT_STRIDED_INSTANCE(bf16_turns_64, kBFloat16, kOutput, 64, 4, true)
CONVT_STRIDED_INSTANCE(bf16_turns_k3_32, kBFloat16, kOutput, 32, 3, true)
