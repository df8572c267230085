#include "streamed/tiled_layout.h"

#include <cstdlib>

#include "problem/adjoint.h"

namespace convt {
namespace {

// Elements from a tensor's first to its last.
int64_t extent(const int64_t (&stride)[4], int64_t batch, int64_t channels, int64_t rows, int64_t columns) {
  return (batch - 1) * std::abs(stride[0]) + (channels - 1) * std::abs(stride[1]) + (rows - 1) * std::abs(stride[2]) +
         (columns - 1) * std::abs(stride[3]);
}

}  // namespace

bool make_thin_tiled_layout(const ConvTProblem& asked, int32_t block_positions, int32_t block_channels,
                            ThinTiledLayout* layout) {
  if (!make_thin_direct_layout(asked, layout)) return false;
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const Axis &h = problem.h, &w = problem.w;
  constexpr int64_t kMost = int64_t{1} << 30;
  // Kernels count from the first element in 32 bits, beyond the image's borders too.
  const double border = (static_cast<double>(h.kernel) * std::abs(h.dilation) + std::abs(h.padding)) *
                        std::abs(static_cast<double>(problem.x_stride[2]));
  if (border > kMost || extent(problem.x_stride, problem.batch, problem.c_in, h.in, w.in) > kMost ||
      extent(problem.y_stride, problem.batch, problem.c_out, h.out, w.out) > kMost) {
    return false;
  }
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  layout->result_rows = h.out;
  layout->result_columns = w.out;
  const int32_t rows = ceil_div(h.out, h.stride), columns = ceil_div(w.out, w.stride);
  const int64_t positions = problem.batch * rows * columns;
  layout->num_positions = static_cast<int32_t>(positions);
  layout->by_columns = Divisor::of(columns);
  layout->by_rows = Divisor::of(rows);
  layout->block_positions = block_positions;
  layout->block_channels = block_channels;
  const int64_t channel_tiles = ceil_div(layout->group_co, block_channels);
  const int64_t position_tiles = ceil_div(positions, int64_t{block_positions});
  const int64_t phases = int64_t{h.stride} * w.stride;
  layout->by_channel_tiles = Divisor::of(static_cast<int32_t>(channel_tiles));
  layout->by_phases = Divisor::of(static_cast<int32_t>(phases));
  layout->by_position_tiles = Divisor::of(static_cast<int32_t>(position_tiles));
  layout->num_blocks = channel_tiles * position_tiles * phases * problem.groups;
  return layout->num_blocks <= kMost;
}

}  // namespace convt
