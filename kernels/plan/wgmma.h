// Plans of the wgmma engine (wgmma_sm90a/): which tiles, how deep the pipelines, and where things lie.
// Called by: plan/choose.cpp, launch/wgmma.cpp, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/plan.h"
#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt {

// Stages of the source that are on their way to or in shared memory, before they are converted: 3, or 2 where those do
// not fit.
inline constexpr int32_t kRawSlots = 3;
// Stages that are on their way straight to operand slots.
inline constexpr int32_t kDirectAhead = 2;

// The GEMM of a direction, per group, and its positions.
struct GemmShape {
  int32_t k_channels, n_channels;
  int32_t positions_h, positions_w;  // of the result's first phase
  int32_t source_h, source_w, result_h, result_w;
  int32_t result_step_h, result_step_w;
};

GemmShape make_gemm_shape(const ConvTProblem& problem);

inline bool split_operands(const ConvTProblem& problem) { return problem.precision == Precision::kTf32x3; }

// The columns of the source that a window row of a tile of `pitch` positions reads, all residues together, from
// `first` on, counted from the tile's corner.
struct SourceColumns {
  int32_t first, count;
};
SourceColumns source_columns(const TapProgram& program, int32_t pitch);

// Every row of the source begins on 16 bytes, and so do all windows: raw rows are rows of an operand plane.
bool rows_begin_on_vectors(const ConvTProblem& problem);

// Columns are neighbours and the source has no gaps: every 16 bytes of memory that hold one of its elements, but the
// last, are its own.
bool source_has_no_gaps(const ConvTProblem& problem);

// Into how many parts loaders cut the work of a unit, so that all of them have some: a power of two, parts of a
// multiple of `least_work`.
struct LoaderWork {
  int32_t units, work, least_work;
  int32_t parts() const;
  double cycles() const { return cycles(parts()); }
  double cycles(int32_t parts) const;
  double unit_cycles, work_cycles;
};
LoaderWork copy_work(const ConvTProblem& problem, const WgmmaPlan& plan, const TapProgram& program, bool vectors);
LoaderWork convert_work(const ConvTProblem& problem, const WgmmaPlan& plan, const TapProgram& program);

// The place of a block's first position in the operand plane, and of its next 8 positions from there.
int32_t block_origin(const WgmmaPlan& plan, int32_t block);
int32_t block_row_step(const WgmmaPlan& plan);

// Tiles along each digit of a tile's number.
struct WgmmaGrid {
  int32_t channel_tiles, w_tiles, w_splits, h_tiles, batch_tiles;
};
WgmmaGrid make_wgmma_grid(const ConvTProblem& problem, const TapProgram& program, const WgmmaPlan& plan);

// Fills plan->compute_us, memory_us and estimate_us: wgmma_cost.cpp.
void estimate_wgmma(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program,
                    const GemmShape& gemm, Plan* plan);

}  // namespace convt
