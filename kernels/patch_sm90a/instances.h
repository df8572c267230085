// Kernel instances of the patch engine, for dispatch (patch_sm90a/launch.cpp), planning and tests.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// What a GEMM row computes, and its layout in memory. This determines which results of a thread are contiguous.
enum class PatchForm : int32_t {
  kPairs,     // NCHW, forward: two columns of each of two rows of the position's patch of the output
  kQuads,     // NCHW, forward: four columns of one row of the patch
  kChannels,  // channels_last, forward: two columns of two rows, or four of one
  kGather,    // NCHW, gradient of the input: a stage contains two columns of each of two rows of the patch
};

// A kernel of the patch engine. A block is one tap of 64 channels, or 64 channels if the kernel gathers. Two consumer
// warpgroups, or one for problems with few tiles.
struct PatchInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  PatchForm form;
  int32_t blocks;
  int32_t consumers;
};

inline constexpr PatchInstance kPatchInstances[] = {
    {"patch_tf32_pairs_4x2", DataType::kFloat32, Precision::kTf32, PatchForm::kPairs, 4, 2},
    {"patch_tf32_pairs_4x1", DataType::kFloat32, Precision::kTf32, PatchForm::kPairs, 4, 1},
    {"patch_tf32_quads_4x2", DataType::kFloat32, Precision::kTf32, PatchForm::kQuads, 4, 2},
    {"patch_tf32_channels_4x2", DataType::kFloat32, Precision::kTf32, PatchForm::kChannels, 4, 2},
    {"patch_tf32_gather_4x2", DataType::kFloat32, Precision::kTf32, PatchForm::kGather, 4, 2},
    {"patch_tf32_gather_4x1", DataType::kFloat32, Precision::kTf32, PatchForm::kGather, 4, 1},
    {"patch_tf32_gather_2x2", DataType::kFloat32, Precision::kTf32, PatchForm::kGather, 2, 2},
    {"patch_tf32_gather_2x1", DataType::kFloat32, Precision::kTf32, PatchForm::kGather, 2, 1},
    {"patch_tf32x3_pairs_4x2", DataType::kFloat32, Precision::kTf32x3, PatchForm::kPairs, 4, 2},
    {"patch_tf32x3_pairs_2x1", DataType::kFloat32, Precision::kTf32x3, PatchForm::kPairs, 2, 1},
    {"patch_tf32x3_quads_4x2", DataType::kFloat32, Precision::kTf32x3, PatchForm::kQuads, 4, 2},
    {"patch_tf32x3_channels_4x2", DataType::kFloat32, Precision::kTf32x3, PatchForm::kChannels, 4, 2},
    {"patch_tf32x3_gather_4x2", DataType::kFloat32, Precision::kTf32x3, PatchForm::kGather, 4, 2},
    {"patch_tf32x3_gather_2x2", DataType::kFloat32, Precision::kTf32x3, PatchForm::kGather, 2, 2},
    {"patch_tf32x3_gather_2x1", DataType::kFloat32, Precision::kTf32x3, PatchForm::kGather, 2, 1},
    {"patch_bf16_pairs_4x2", DataType::kBFloat16, Precision::kHalf, PatchForm::kPairs, 4, 2},
    {"patch_bf16_pairs_4x1", DataType::kBFloat16, Precision::kHalf, PatchForm::kPairs, 4, 1},
    {"patch_bf16_quads_4x2", DataType::kBFloat16, Precision::kHalf, PatchForm::kQuads, 4, 2},
    {"patch_bf16_channels_4x2", DataType::kBFloat16, Precision::kHalf, PatchForm::kChannels, 4, 2},
    {"patch_bf16_gather_4x2", DataType::kBFloat16, Precision::kHalf, PatchForm::kGather, 4, 2},
    {"patch_bf16_gather_4x1", DataType::kBFloat16, Precision::kHalf, PatchForm::kGather, 4, 1},
    {"patch_bf16_gather_2x2", DataType::kBFloat16, Precision::kHalf, PatchForm::kGather, 2, 2},
    {"patch_bf16_gather_2x1", DataType::kBFloat16, Precision::kHalf, PatchForm::kGather, 2, 1},
    {"patch_f16_pairs_4x2", DataType::kFloat16, Precision::kHalf, PatchForm::kPairs, 4, 2},
    {"patch_f16_pairs_4x1", DataType::kFloat16, Precision::kHalf, PatchForm::kPairs, 4, 1},
    {"patch_f16_quads_4x2", DataType::kFloat16, Precision::kHalf, PatchForm::kQuads, 4, 2},
    {"patch_f16_channels_4x2", DataType::kFloat16, Precision::kHalf, PatchForm::kChannels, 4, 2},
    {"patch_f16_gather_4x2", DataType::kFloat16, Precision::kHalf, PatchForm::kGather, 4, 2},
    {"patch_f16_gather_4x1", DataType::kFloat16, Precision::kHalf, PatchForm::kGather, 4, 1},
    {"patch_f16_gather_2x2", DataType::kFloat16, Precision::kHalf, PatchForm::kGather, 2, 2},
    {"patch_f16_gather_2x1", DataType::kFloat16, Precision::kHalf, PatchForm::kGather, 2, 1},
};
inline constexpr int32_t kNumPatchInstances = count_of(kPatchInstances);

// A patch_direct kernel, for unpacked weights (patch_sm90a/direct.cuh).
struct PatchDirectInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t consumers;  // consumer warpgroups
};

inline constexpr PatchDirectInstance kPatchDirectInstances[] = {
    {"patch_tf32_direct_1", DataType::kFloat32, Precision::kTf32, 1},
    {"patch_tf32_direct_2", DataType::kFloat32, Precision::kTf32, 2},
    {"patch_bf16_direct_1", DataType::kBFloat16, Precision::kHalf, 1},
    {"patch_bf16_direct_2", DataType::kBFloat16, Precision::kHalf, 2},
    {"patch_f16_direct_1", DataType::kFloat16, Precision::kHalf, 1},
    {"patch_f16_direct_2", DataType::kFloat16, Precision::kHalf, 2},
};
inline constexpr int32_t kNumPatchDirectInstances = count_of(kPatchDirectInstances);

// A patch_runs kernel, for runs of grad_output (patch_sm90a/runs.cuh).
struct PatchRunsInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t channels;  // result channels per CTA
};

inline constexpr PatchRunsInstance kPatchRunsInstances[] = {
    {"patch_tf32_gather_runs_64", DataType::kFloat32, Precision::kTf32, 64},
    {"patch_tf32_gather_runs_128", DataType::kFloat32, Precision::kTf32, 128},
    {"patch_tf32_gather_runs_256", DataType::kFloat32, Precision::kTf32, 256},
    {"patch_bf16_gather_runs_64", DataType::kBFloat16, Precision::kHalf, 64},
    {"patch_bf16_gather_runs_128", DataType::kBFloat16, Precision::kHalf, 128},
    {"patch_bf16_gather_runs_256", DataType::kBFloat16, Precision::kHalf, 256},
    {"patch_f16_gather_runs_64", DataType::kFloat16, Precision::kHalf, 64},
    {"patch_f16_gather_runs_128", DataType::kFloat16, Precision::kHalf, 128},
    {"patch_f16_gather_runs_256", DataType::kFloat16, Precision::kHalf, 256},
};
inline constexpr int32_t kNumPatchRunsInstances = count_of(kPatchRunsInstances);

}  // namespace convt

namespace convt::patch_sm90a {

// The kernel of a row of kPatchInstances, kPatchDirectInstances or kPatchRunsInstances.
const void* kernel_of(int32_t instance);
const void* direct_kernel_of(int32_t instance);
const void* runs_kernel_of(int32_t instance);

}  // namespace convt::patch_sm90a
