#include "upsample_sm90a/instance.cuh"

CONVT_UPSAMPLE_INSTANCE(f16, kFloat16)
