#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(f16_output_64, kFloat16, kOutput, 64, 4, false)
CONVT_STRIDED_INSTANCE(f16_gather_128, kFloat16, kGather, 128, 4, false)
CONVT_STRIDED_INSTANCE(f16_gather_64, kFloat16, kGather, 64, 4, false)
CONVT_STRIDED_INSTANCE(f16_output_k3_32, kFloat16, kOutput, 32, 3, false)
CONVT_STRIDED_INSTANCE(f16_gather_k3_128, kFloat16, kGather, 128, 3, false)
CONVT_STRIDED_INSTANCE(f16_gather_k3_64, kFloat16, kGather, 64, 3, false)
CONVT_STRIDED_INSTANCE(f16_turns_64, kFloat16, kOutput, 64, 4, true)
CONVT_STRIDED_INSTANCE(f16_turns_k3_32, kFloat16, kOutput, 32, 3, true)
