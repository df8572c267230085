#include "upsample_sm90a/instance.cuh"

CONVT_UPSAMPLE_INSTANCE(f16, kFloat16)
CONVT_UPSAMPLE_INSTANCE(bf16, kBFloat16)
