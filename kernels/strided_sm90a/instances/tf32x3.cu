#include "strided_sm90a/instance.cuh"

CONVT_STRIDED_INSTANCE(tf32x3_output_32, kTf32x3, kOutput, 32, 4, false)
CONVT_STRIDED_INSTANCE(tf32x3_gather_64, kTf32x3, kGather, 64, 4, false)
CONVT_STRIDED_INSTANCE(tf32x3_output_k3_32, kTf32x3, kOutput, 32, 3, false)
CONVT_STRIDED_INSTANCE(tf32x3_gather_k3_64, kTf32x3, kGather, 64, 3, false)
