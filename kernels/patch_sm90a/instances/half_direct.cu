#include "patch_sm90a/direct_instance.cuh"

CONVT_PATCH_DIRECT_INSTANCE(f16_direct_1, __half, 1)
CONVT_PATCH_DIRECT_INSTANCE(bf16_direct_1, __nv_bfloat16, 1)
CONVT_PATCH_DIRECT_INSTANCE(f16_direct_2, __half, 2)
CONVT_PATCH_DIRECT_INSTANCE(bf16_direct_2, __nv_bfloat16, 2)
