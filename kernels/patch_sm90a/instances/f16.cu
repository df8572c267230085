#include "patch_sm90a/instance.cuh"

CONVT_PATCH_INSTANCE(f16_pairs_4x2, kFloat16, kPairs, 4, 2)
CONVT_PATCH_INSTANCE(f16_pairs_4x1, kFloat16, kPairs, 4, 1)
CONVT_PATCH_INSTANCE(f16_quads_4x2, kFloat16, kQuads, 4, 2)
CONVT_PATCH_INSTANCE(f16_quads_4x1, kFloat16, kQuads, 4, 1)
CONVT_PATCH_INSTANCE(f16_channels_4x2, kFloat16, kChannels, 4, 2)
CONVT_PATCH_INSTANCE(f16_channels_4x1, kFloat16, kChannels, 4, 1)
CONVT_PATCH_INSTANCE(f16_gather_4x2, kFloat16, kGather, 4, 2)
CONVT_PATCH_INSTANCE(f16_gather_4x1, kFloat16, kGather, 4, 1)
CONVT_PATCH_INSTANCE(f16_gather_2x2, kFloat16, kGather, 2, 2)
CONVT_PATCH_INSTANCE(f16_gather_2x1, kFloat16, kGather, 2, 1)
CONVT_PATCH_INSTANCE(f16_gather_quads_4x2, kFloat16, kGatherQuads, 4, 2)
CONVT_PATCH_INSTANCE(f16_gather_quads_2x2, kFloat16, kGatherQuads, 2, 2)
