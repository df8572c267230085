#include "patch_sm90a/instance.cuh"

CONVT_PATCH_INSTANCE(tf32x3_pairs_4x2, kTf32x3, kPairs, 4, 2)
CONVT_PATCH_INSTANCE(tf32x3_pairs_2x1, kTf32x3, kPairs, 2, 1)
CONVT_PATCH_INSTANCE(tf32x3_quads_4x2, kTf32x3, kQuads, 4, 2)
CONVT_PATCH_INSTANCE(tf32x3_channels_4x2, kTf32x3, kChannels, 4, 2)
CONVT_PATCH_INSTANCE(tf32x3_gather_4x2, kTf32x3, kGather, 4, 2)
CONVT_PATCH_INSTANCE(tf32x3_gather_2x2, kTf32x3, kGather, 2, 2)
CONVT_PATCH_INSTANCE(tf32x3_gather_2x1, kTf32x3, kGather, 2, 1)
CONVT_PATCH_INSTANCE(tf32x3_gather_quads_4x2, kTf32x3, kGatherQuads, 4, 2)
CONVT_PATCH_INSTANCE(tf32x3_gather_quads_2x2, kTf32x3, kGatherQuads, 2, 2)
