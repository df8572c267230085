// The kernel instances of the patch engine: the one list that dispatch (patch_sm90a/launch.cpp), planning and tests
// read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// What a position of the matrix product has, and how it lies in memory, which decides what of a thread's results are
// neighbours.
enum class PatchForm : int32_t {
  kPairs,     // a patch of the output, NCHW: two columns of each of two rows of it
  kQuads,     // four columns of a row of it
  kChannels,  // channels_last, either of these
  kGather,    // NCHW, an element of the input's gradient from two columns of each of two rows of its patch at a time
  kGatherQuads,  // the same from four columns of a row
  kTurns,  // as kPairs, of 2 x 2 kernels whose weights stay: two warpgroups multiply and store in turn
};

// A kernel of the patch engine. Blocks are taps of 64 channels or, where it gathers, 64 channels each; two warpgroups
// multiply, or for problems of few tiles one.
struct PatchInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  PatchForm form;
  int32_t blocks;
  int32_t consumers;
};

// X(symbol, dtype, precision, form, blocks, consumers)
#define CONVT_PATCH_INSTANCES(X)                                    \
  X(tf32_pairs_4x2, kFloat32, kTf32, kPairs, 4, 2)                  \
  X(tf32_pairs_4x1, kFloat32, kTf32, kPairs, 4, 1)                  \
  X(tf32_quads_4x2, kFloat32, kTf32, kQuads, 4, 2)                  \
  X(tf32_quads_4x1, kFloat32, kTf32, kQuads, 4, 1)                  \
  X(tf32_channels_4x2, kFloat32, kTf32, kChannels, 4, 2)            \
  X(tf32_channels_4x1, kFloat32, kTf32, kChannels, 4, 1)            \
  X(tf32_gather_4x2, kFloat32, kTf32, kGather, 4, 2)                \
  X(tf32_gather_4x1, kFloat32, kTf32, kGather, 4, 1)                \
  X(tf32_gather_2x2, kFloat32, kTf32, kGather, 2, 2)                \
  X(tf32_gather_2x1, kFloat32, kTf32, kGather, 2, 1)                \
  X(tf32_gather_quads_4x2, kFloat32, kTf32, kGatherQuads, 4, 2)     \
  X(tf32_gather_quads_2x2, kFloat32, kTf32, kGatherQuads, 2, 2)     \
  X(tf32_turns, kFloat32, kTf32, kTurns, 4, 2)                      \
  X(tf32x3_pairs_4x2, kFloat32, kTf32x3, kPairs, 4, 2)              \
  X(tf32x3_pairs_2x1, kFloat32, kTf32x3, kPairs, 2, 1)              \
  X(tf32x3_quads_4x2, kFloat32, kTf32x3, kQuads, 4, 2)              \
  X(tf32x3_channels_4x2, kFloat32, kTf32x3, kChannels, 4, 2)        \
  X(tf32x3_gather_4x2, kFloat32, kTf32x3, kGather, 4, 2)            \
  X(tf32x3_gather_2x2, kFloat32, kTf32x3, kGather, 2, 2)            \
  X(tf32x3_gather_2x1, kFloat32, kTf32x3, kGather, 2, 1)            \
  X(tf32x3_gather_quads_4x2, kFloat32, kTf32x3, kGatherQuads, 4, 2) \
  X(tf32x3_gather_quads_2x2, kFloat32, kTf32x3, kGatherQuads, 2, 2) \
  X(bf16_pairs_4x2, kBFloat16, kHalf, kPairs, 4, 2)                 \
  X(bf16_pairs_4x1, kBFloat16, kHalf, kPairs, 4, 1)                 \
  X(bf16_quads_4x2, kBFloat16, kHalf, kQuads, 4, 2)                 \
  X(bf16_quads_4x1, kBFloat16, kHalf, kQuads, 4, 1)                 \
  X(bf16_channels_4x2, kBFloat16, kHalf, kChannels, 4, 2)           \
  X(bf16_channels_4x1, kBFloat16, kHalf, kChannels, 4, 1)           \
  X(bf16_gather_4x2, kBFloat16, kHalf, kGather, 4, 2)               \
  X(bf16_gather_4x1, kBFloat16, kHalf, kGather, 4, 1)               \
  X(bf16_gather_2x2, kBFloat16, kHalf, kGather, 2, 2)               \
  X(bf16_gather_2x1, kBFloat16, kHalf, kGather, 2, 1)               \
  X(bf16_gather_quads_4x2, kBFloat16, kHalf, kGatherQuads, 4, 2)    \
  X(bf16_gather_quads_2x2, kBFloat16, kHalf, kGatherQuads, 2, 2)    \
  X(bf16_turns, kBFloat16, kHalf, kTurns, 4, 2)                     \
  X(f16_pairs_4x2, kFloat16, kHalf, kPairs, 4, 2)                   \
  X(f16_pairs_4x1, kFloat16, kHalf, kPairs, 4, 1)                   \
  X(f16_quads_4x2, kFloat16, kHalf, kQuads, 4, 2)                   \
  X(f16_quads_4x1, kFloat16, kHalf, kQuads, 4, 1)                   \
  X(f16_channels_4x2, kFloat16, kHalf, kChannels, 4, 2)             \
  X(f16_channels_4x1, kFloat16, kHalf, kChannels, 4, 1)             \
  X(f16_gather_4x2, kFloat16, kHalf, kGather, 4, 2)                 \
  X(f16_gather_4x1, kFloat16, kHalf, kGather, 4, 1)                 \
  X(f16_gather_2x2, kFloat16, kHalf, kGather, 2, 2)                 \
  X(f16_gather_2x1, kFloat16, kHalf, kGather, 2, 1)                 \
  X(f16_gather_quads_4x2, kFloat16, kHalf, kGatherQuads, 4, 2)      \
  X(f16_gather_quads_2x2, kFloat16, kHalf, kGatherQuads, 2, 2)      \
  X(f16_turns, kFloat16, kHalf, kTurns, 4, 2)

inline constexpr PatchInstance kPatchInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, form, blocks, consumers) \
  {"patch_" #symbol, DataType::dtype, Precision::precision, PatchForm::form, blocks, consumers},
    CONVT_PATCH_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumPatchInstances = count_of(kPatchInstances);

// A kernel for weights as they are (patch_sm90a/direct_layout.h).
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

// A kernel for runs of grad_output (patch_sm90a/runs_layout.h).
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

CONVT_PATCH_INSTANCES(CONVT_DECLARE_PACKED_KERNEL)

CONVT_PATCH_DIRECT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_PATCH_RUNS_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::patch_sm90a
