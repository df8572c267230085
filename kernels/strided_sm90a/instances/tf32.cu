#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(tf32_output_64, kTf32, kOutput, 64, 4, false)
CONVT_STRIDED_INSTANCE(tf32_gather_128, kTf32, kGather, 128, 4, false)
CONVT_STRIDED_INSTANCE(tf32_gather_64, kTf32, kGather, 64, 4, false)
CONVT_STRIDED_INSTANCE(tf32_output_k3_32, kTf32, kOutput, 32, 3, false)
CONVT_STRIDED_INSTANCE(tf32_gather_k3_128, kTf32, kGather, 128, 3, false)
CONVT_STRIDED_INSTANCE(tf32_gather_k3_64, kTf32, kGather, 64, 3, false)
CONVT_STRIDED_INSTANCE(tf32_turns_64, kTf32, kOutput, 64, 4, true)
CONVT_STRIDED_INSTANCE(tf32_turns_k3_32, kTf32, kOutput, 32, 3, true)
