#include "patch_sm90a/instance.cuh"

CONVT_PATCH_INSTANCE(tf32_pairs_4x2, kTf32, kPairs, 4, 2)
CONVT_PATCH_INSTANCE(tf32_pairs_4x1, kTf32, kPairs, 4, 1)
CONVT_PATCH_INSTANCE(tf32_quads_4x2, kTf32, kQuads, 4, 2)
CONVT_PATCH_INSTANCE(tf32_quads_4x1, kTf32, kQuads, 4, 1)
CONVT_PATCH_INSTANCE(tf32_channels_4x2, kTf32, kChannels, 4, 2)
CONVT_PATCH_INSTANCE(tf32_channels_4x1, kTf32, kChannels, 4, 1)
CONVT_PATCH_INSTANCE(tf32_gather_4x2, kTf32, kGather, 4, 2)
CONVT_PATCH_INSTANCE(tf32_gather_4x1, kTf32, kGather, 4, 1)
CONVT_PATCH_INSTANCE(tf32_gather_2x2, kTf32, kGather, 2, 2)
CONVT_PATCH_INSTANCE(tf32_gather_2x1, kTf32, kGather, 2, 1)
CONVT_PATCH_INSTANCE(tf32_gather_quads_4x2, kTf32, kGatherQuads, 4, 2)
CONVT_PATCH_INSTANCE(tf32_gather_quads_2x2, kTf32, kGatherQuads, 2, 2)
