#include "patch_sm90a/instance.cuh"

CONVT_PATCH_INSTANCE(bf16_pairs_4x2, kBFloat16, kPairs, 4, 2)
CONVT_PATCH_INSTANCE(bf16_pairs_4x1, kBFloat16, kPairs, 4, 1)
CONVT_PATCH_INSTANCE(bf16_quads_4x2, kBFloat16, kQuads, 4, 2)
CONVT_PATCH_INSTANCE(bf16_quads_4x1, kBFloat16, kQuads, 4, 1)
CONVT_PATCH_INSTANCE(bf16_channels_4x2, kBFloat16, kChannels, 4, 2)
CONVT_PATCH_INSTANCE(bf16_channels_4x1, kBFloat16, kChannels, 4, 1)
CONVT_PATCH_INSTANCE(bf16_gather_4x2, kBFloat16, kGather, 4, 2)
CONVT_PATCH_INSTANCE(bf16_gather_4x1, kBFloat16, kGather, 4, 1)
CONVT_PATCH_INSTANCE(bf16_gather_2x2, kBFloat16, kGather, 2, 2)
CONVT_PATCH_INSTANCE(bf16_gather_2x1, kBFloat16, kGather, 2, 1)
CONVT_PATCH_INSTANCE(bf16_gather_quads_4x2, kBFloat16, kGatherQuads, 4, 2)
CONVT_PATCH_INSTANCE(bf16_gather_quads_2x2, kBFloat16, kGatherQuads, 2, 2)
