// The kernel instances of the patch engine: the one list that dispatch (patch_sm90a/launch.cpp), planning and tests
// read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// What a position of the matrix product computes, and how it lies in memory: this decides which of a thread's results
// are neighbours.
enum class PatchForm : int32_t {
  kPairs,        // NCHW, forward: two columns of each of two rows of the position's patch of the output
  kQuads,        // NCHW, forward: four columns of one row of the patch
  kChannels,     // channels_last, forward: two columns of two rows, or four of one
  kGather,       // NCHW, gradient of the input: a stage reads two columns of each of two rows of the patch
  kGatherQuads,  // as kGather, four columns of one row of the patch: of tf32x3, as patch_runs has the other classes
  kPingPong,     // as kPairs, for 2 x 2 kernels whose weights stay: one warpgroup multiplies while another stores
};

// A kernel of the patch engine. A block is one tap of 64 channels or, where the kernel gathers, 64 channels. Two
// warpgroups multiply, or one in problems of few tiles.
struct PatchInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  PatchForm form;
  int32_t blocks;
  int32_t consumers;
};

// X(symbol, dtype, precision, form, blocks, consumers)
#define CONVT_PATCH_SHAPES(X, type, dtype, precision)       \
  X(type##_pairs_4x2, dtype, precision, kPairs, 4, 2)       \
  X(type##_pairs_4x1, dtype, precision, kPairs, 4, 1)       \
  X(type##_quads_4x2, dtype, precision, kQuads, 4, 2)       \
  X(type##_channels_4x2, dtype, precision, kChannels, 4, 2) \
  X(type##_gather_4x2, dtype, precision, kGather, 4, 2)     \
  X(type##_gather_4x1, dtype, precision, kGather, 4, 1)     \
  X(type##_gather_2x2, dtype, precision, kGather, 2, 2)     \
  X(type##_gather_2x1, dtype, precision, kGather, 2, 1)     \
  X(type##_ping_pong, dtype, precision, kPingPong, 4, 2)
#define CONVT_PATCH_TF32X3(X)                                       \
  X(tf32x3_pairs_4x2, kFloat32, kTf32x3, kPairs, 4, 2)              \
  X(tf32x3_pairs_2x1, kFloat32, kTf32x3, kPairs, 2, 1)              \
  X(tf32x3_quads_4x2, kFloat32, kTf32x3, kQuads, 4, 2)              \
  X(tf32x3_channels_4x2, kFloat32, kTf32x3, kChannels, 4, 2)        \
  X(tf32x3_gather_4x2, kFloat32, kTf32x3, kGather, 4, 2)            \
  X(tf32x3_gather_2x2, kFloat32, kTf32x3, kGather, 2, 2)            \
  X(tf32x3_gather_2x1, kFloat32, kTf32x3, kGather, 2, 1)            \
  X(tf32x3_gather_quads_4x2, kFloat32, kTf32x3, kGatherQuads, 4, 2) \
  X(tf32x3_gather_quads_2x2, kFloat32, kTf32x3, kGatherQuads, 2, 2)
#define CONVT_PATCH_INSTANCES(X)                \
  CONVT_PATCH_SHAPES(X, tf32, kFloat32, kTf32)  \
  CONVT_PATCH_TF32X3(X)                         \
  CONVT_PATCH_SHAPES(X, bf16, kBFloat16, kHalf) \
  CONVT_PATCH_SHAPES(X, f16, kFloat16, kHalf)

inline constexpr PatchInstance kPatchInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, form, blocks, consumers) \
  {"patch_" #symbol, DataType::dtype, Precision::precision, PatchForm::form, blocks, consumers},
    CONVT_PATCH_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumPatchInstances = count_of(kPatchInstances);

// A kernel for weights as they are (patch_sm90a/direct.cuh).
struct PatchDirectInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t consumers;  // warpgroups that multiply
};

// X(symbol, dtype, precision, consumers)
#define CONVT_PATCH_DIRECT_INSTANCES(X) \
  X(tf32_direct_1, kFloat32, kTf32, 1)  \
  X(tf32_direct_2, kFloat32, kTf32, 2)  \
  X(bf16_direct_1, kBFloat16, kHalf, 1) \
  X(bf16_direct_2, kBFloat16, kHalf, 2) \
  X(f16_direct_1, kFloat16, kHalf, 1)   \
  X(f16_direct_2, kFloat16, kHalf, 2)

inline constexpr PatchDirectInstance kPatchDirectInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, consumers) \
  {"patch_" #symbol, DataType::dtype, Precision::precision, consumers},
    CONVT_PATCH_DIRECT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumPatchDirectInstances = count_of(kPatchDirectInstances);

// A kernel for runs of grad_output (patch_sm90a/runs.cuh).
struct PatchRunsInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t channels;  // of the result, of a CTA
};

// X(symbol, dtype, precision, channels)
#define CONVT_PATCH_RUNS_INSTANCES(X)            \
  X(tf32_gather_runs_64, kFloat32, kTf32, 64)    \
  X(tf32_gather_runs_128, kFloat32, kTf32, 128)  \
  X(tf32_gather_runs_256, kFloat32, kTf32, 256)  \
  X(bf16_gather_runs_64, kBFloat16, kHalf, 64)   \
  X(bf16_gather_runs_128, kBFloat16, kHalf, 128) \
  X(bf16_gather_runs_256, kBFloat16, kHalf, 256) \
  X(f16_gather_runs_64, kFloat16, kHalf, 64)     \
  X(f16_gather_runs_128, kFloat16, kHalf, 128)   \
  X(f16_gather_runs_256, kFloat16, kHalf, 256)

inline constexpr PatchRunsInstance kPatchRunsInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, channels) \
  {"patch_" #symbol, DataType::dtype, Precision::precision, channels},
    CONVT_PATCH_RUNS_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumPatchRunsInstances = count_of(kPatchRunsInstances);

}  // namespace convt

namespace convt::patch_sm90a {

CONVT_PATCH_INSTANCES(CONVT_DECLARE_KERNEL)

CONVT_PATCH_DIRECT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_PATCH_RUNS_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::patch_sm90a
