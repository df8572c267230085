#include "patch_sm90a/turns_instance.cuh"

CONVT_PATCH_TURNS(tf32_turns, kTf32)
CONVT_PATCH_TURNS(bf16_turns, kBFloat16)
CONVT_PATCH_TURNS(f16_turns, kFloat16)
