#include "nhwc_sm90a/layout.h"

#include <algorithm>
#include <cstdlib>

#include "problem/phases.h"

namespace convt {

int64_t nhwc_tap_stride(const ConvTProblem& problem) {
  const int64_t rows = problem.w_stride[2], columns = problem.w_stride[3];
  if (problem.w.kernel == 1) return problem.h.kernel == 1 ? problem.w_stride[0] : rows;
  return problem.h.kernel == 1 || rows == problem.w.kernel * columns ? columns : 0;
}

NhwcWindow make_nhwc_window(const TapProgram& program, int32_t run) {
  const TapRun& taps = program.runs[run];
  const int32_t count_w = std::max(program.phases_w, program.sub_w);
  const AxisWindow &h = program.window_h[run / count_w], &w = program.window_w[run % count_w];
  NhwcWindow window{};
  if (taps.num_h == 0) return window;
  const int32_t last_row = (taps.num_h - 1) * taps.row_step, last_column = (taps.num_w - 1) * taps.column_step;
  const int32_t lowest_row = taps.row + std::min(0, last_row);
  const int32_t lowest_column = taps.column + std::min(0, last_column);
  window.row = (h.shift + lowest_row) * program.source_step_h + h.residue;
  window.column = (w.shift + lowest_column) * program.source_step_w + w.residue;
  window.extra_h = std::abs(last_row);
  window.extra_w = std::abs(last_column);
  window.first_row = taps.row - lowest_row;
  window.first_column = taps.column - lowest_column;
  return window;
}

NhwcGrid make_nhwc_grid(const ConvTProblem& problem, const TapProgram& program, const NhwcTile& plan) {
  const bool forward = problem.direction == Direction::kForward;
  NhwcGrid grid;
  const int64_t channels = (forward ? problem.c_out : problem.c_in) / problem.groups;
  grid.channel_tiles = static_cast<int32_t>(ceil_div(channels, int64_t{plan.block_n}));
  grid.phases_w = program.phases_w;
  grid.phases_h = program.phases_h;
  grid.w_tiles = ceil_div(forward ? num_positions(problem.w, 0) : problem.w.in, plan.tile_w);
  grid.h_tiles = ceil_div(forward ? num_positions(problem.h, 0) : problem.h.in, plan.tile_h);
  grid.image_tiles = ceil_div(problem.batch, int64_t{plan.tile_n});
  return grid;
}

}  // namespace convt
