// Plans of the Hopper engine (wgmma_sm90a/): which tiles, how deep the pipelines, and where things lie.
// Called by: plan/choose.cpp, launch/wgmma.cpp, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/plan.h"
#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt {

// Stages of the source that are on their way to or in shared memory, before they are converted.
inline constexpr int32_t kRawSlots = 3;

// The GEMM of a direction, per group, and its positions.
struct GemmShape {
  int32_t k_channels, n_channels;
  int32_t positions_h, positions_w;  // of the result's first phase
  int32_t source_h, source_w, result_h, result_w;
  int32_t result_step_h, result_step_w;
};

GemmShape make_gemm_shape(const ConvTProblem& problem);

// The place of a block's first position in the operand plane, and of its next 8 positions from there.
int32_t block_origin(const WgmmaPlan& plan, int32_t block);
int32_t block_row_step(const WgmmaPlan& plan);

// Tiles along each digit of a tile's number.
struct WgmmaGrid {
  int32_t channel_tiles, w_tiles, w_splits, h_tiles, batch_tiles;
};
WgmmaGrid make_wgmma_grid(const ConvTProblem& problem, const TapProgram& program, const WgmmaPlan& plan);

}  // namespace convt
