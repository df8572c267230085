// Layouts of gathered terms and of the direct kernels.
#include "gather/layout.h"

#include <algorithm>
#include <cstdlib>

#include "plan/shared_memory.h"
#include "problem/adjoint.h"
#include "problem/shapes.h"
#include "tiling/slots.h"

namespace convt {
namespace {

bool make_phases(const Axis& axis, Phase (&phases)[kMaxTermPhases]) {
  if (axis.stride > kMaxTermPhases) return false;
  for (int32_t phase = 0; phase < axis.stride; ++phase) phases[phase] = make_phase(axis, phase);
  return true;
}

// Range of source coordinates that terms may have, including coordinates outside.
int64_t reach(const Axis& axis) {
  return axis.in + int64_t{axis.kernel} * std::abs(axis.dilation) + std::abs(axis.padding);
}

bool holds_offsets(const int64_t (&size)[4], const int64_t (&stride)[4]) {
  constexpr int64_t kMost = int64_t{1} << 30;
  int64_t furthest = 0;
  for (int i = 0; i < 4; ++i) {
    if (size[i] > kMost || std::abs(stride[i]) > kMost / std::max<int64_t>(1, size[i])) return false;
    furthest += size[i] * std::abs(stride[i]);
  }
  return furthest <= kMost;
}

// Elements between a tensor's first and last element.
int64_t extent(const int64_t (&stride)[4], int64_t batch, int64_t channels, int64_t rows, int64_t columns) {
  return (batch - 1) * std::abs(stride[0]) + (channels - 1) * std::abs(stride[1]) + (rows - 1) * std::abs(stride[2]) +
         (columns - 1) * std::abs(stride[3]);
}

// Sets the fields of the tile. Returns false if the numbers exceed 32 bits.
bool make_tile(const ConvTProblem& asked, int32_t block_positions, int32_t block_channels, ThinGatherLayout* layout) {
  if (!make_terms_layout(asked, layout)) return false;
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const Axis &h = problem.h, &w = problem.w;
  constexpr int64_t kMost = int64_t{1} << 30;
  // Kernels use 32-bit element offsets, also outside the image's borders.
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
  layout->by_columns = FastDivmod::of(columns);
  layout->by_rows = FastDivmod::of(rows);
  layout->block_positions = block_positions;
  layout->block_channels = block_channels;
  const int64_t channel_tiles = ceil_div(layout->group_co, block_channels);
  const int64_t position_tiles = ceil_div(positions, int64_t{block_positions});
  const int64_t phases = int64_t{h.stride} * w.stride;
  layout->by_channel_tiles = FastDivmod::of(static_cast<int32_t>(channel_tiles));
  layout->by_phases = FastDivmod::of(static_cast<int32_t>(phases));
  layout->by_position_tiles = FastDivmod::of(static_cast<int32_t>(position_tiles));
  layout->num_blocks = channel_tiles * position_tiles * phases * problem.groups;
  return layout->num_blocks <= kMost;
}

// Rounds up to an odd number of quads, in elements: neighbouring rows then start in different banks.
int32_t odd_quads(int32_t elems) { return (elems + 3) / 4 * 4 + ((elems + 3) / 4 % 2 == 0 ? 4 : 0); }

}  // namespace

bool make_terms_layout(const ConvTProblem& asked, TermsLayout* layout) {
  *layout = TermsLayout{};
  if (asked.direction == Direction::kGradWeight) return false;
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const Axis &h = problem.h, &w = problem.w;
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  const int64_t terms = group_ci * max_taps(h) * max_taps(w);
  if (problem.batch > kMost || problem.c_in > kMost || problem.c_out > kMost) return false;
  if (terms < 1 || terms > kMost) return false;
  const int64_t image = int64_t{h.out} * w.out;
  if (image == 0 || problem.batch == 0 || problem.c_out > kMost / image) return false;
  if (problem.batch > kMost / (image * problem.c_out)) return false;
  if (!make_phases(h, layout->phases_h) || !make_phases(w, layout->phases_w)) return false;
  // All offsets within a group's source, or weights, from its first element.
  const int64_t* source = problem.x_stride;
  const int64_t* weight = problem.w_stride;
  const int64_t sizes[4] = {0, group_ci, reach(h), reach(w)};
  if (reach_of(sizes, source) > kMost || weight_reach(problem) > kMost) return false;
  std::copy_n(source, 4, layout->source_stride);
  std::copy_n(problem.y_stride, 4, layout->result_stride);
  std::copy_n(weight, 4, layout->weight_stride);
  layout->weight_group_stride = asked.c_in / asked.groups * asked.w_stride[0];
  layout->rows = h.in;
  layout->columns = w.in;
  layout->row_step = h.position_step;
  layout->column_step = w.position_step;
  layout->group_ci = static_cast<int32_t>(group_ci);
  layout->terms = static_cast<int32_t>(terms);
  layout->results = static_cast<int32_t>(problem.batch * problem.c_out * image);
  layout->channels_last = problem.y_stride[1] < problem.y_stride[3];
  const auto channels = static_cast<int32_t>(problem.c_out);
  const int32_t digits[3] = {layout->channels_last ? channels : w.out, layout->channels_last ? w.out : h.out,
                             layout->channels_last ? h.out : channels};
  for (int i = 0; i < 3; ++i) layout->by_digits[i] = FastDivmod::of(digits[i]);
  layout->by_phases_h = FastDivmod::of(h.stride);
  layout->by_phases_w = FastDivmod::of(w.stride);
  layout->by_group_co = FastDivmod::of(static_cast<int32_t>(group_co));
  return true;
}

bool make_thin_gather_layout(const ConvTProblem& asked, const ThinGatherTile& plan, ThinGatherLayout* layout) {
  *layout = ThinGatherLayout{};
  const ThinGatherInstance& instance = kThinGatherInstances[plan.instance];
  layout->lanes_channels = plan.lanes_channels;
  layout->warps_channels = plan.warps_channels;
  layout->warps_positions = plan.warps_positions;
  layout->threads = 32 * plan.warps_channels * plan.warps_positions;
  const int32_t block_positions = plan.warps_positions * (32 / plan.lanes_channels) * instance.positions;
  const int32_t block_channels = plan.warps_channels * plan.lanes_channels * instance.channels;
  if (asked.dtype != DataType::kFloat32 || layout->threads > kMaxGatherThreads) return false;
  if (!make_tile(asked, block_positions, block_channels, layout)) return false;
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const int32_t taps = max_taps(problem.h) * max_taps(problem.w);
  if (taps > kMostGatherTaps || plan.chunk_taps > taps) return false;
  if (plan.chunk_taps < taps && plan.chunk_ci > 1) return false;  // the order of terms is channels before taps
  layout->chunk_ci = plan.chunk_ci;
  layout->chunk_taps = plan.chunk_taps;
  layout->stages = plan.stages;
  const bool channels_last = is_channels_last(problem.x_stride);
  layout->by_channels = channels_last && (plan.chunk_ci & (plan.chunk_ci - 1)) == 0;
  while (layout->by_channels && layout->load_lanes_log2 < 3 && (2 << layout->load_lanes_log2) <= plan.chunk_ci) {
    ++layout->load_lanes_log2;
  }

  layout->table_positions = round_up(layout->block_positions, 32);
  // Lanes that copy neighbouring channels write to different banks.
  const int32_t lanes = 1 << layout->load_lanes_log2;
  const int32_t of_channel = plan.chunk_taps * layout->block_positions;
  layout->source_pitch = lanes == 1 ? of_channel : congruent_from(of_channel, 32 / lanes, 32);
  layout->weight_pitch = odd_quads(layout->block_channels);
  layout->weight_channel_pitch = odd_quads(plan.chunk_taps * layout->weight_pitch);
  constexpr int64_t kWord = 4, kTermBytes = 4 * kWord;
  const int64_t stage_weight = kWord * plan.chunk_ci * layout->source_pitch;
  const int64_t stage = stage_weight + kWord * plan.chunk_ci * layout->weight_channel_pitch;
  SharedMemory smem;
  smem.take(2 * kWord * layout->table_positions);
  layout->bits_begin = smem.take(kWord * taps * (layout->table_positions / 32));
  layout->terms_begin = smem.take(kTermBytes * plan.chunk_ci * taps, 16);
  layout->stage_begin = smem.take(stage * plan.stages);
  layout->stage_weight = static_cast<int32_t>(stage_weight);
  layout->stage_bytes = static_cast<int32_t>(stage);
  layout->shared_bytes = smem.bytes();
  return smem.fits();
}

bool make_thin_direct_layout(const ConvTProblem& problem, TermsLayout* layout) {
  if (!make_terms_layout(problem, layout)) return false;
  layout->num_blocks = ceil_div(layout->results, kDirectThreads);
  return true;
}

bool make_thin_direct_weight_layout(const ConvTProblem& problem, ThinDirectWeightLayout* layout) {
  *layout = ThinDirectWeightLayout{};
  if (problem.direction != Direction::kGradWeight) return false;
  const Axis &h = problem.h, &w = problem.w;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  const int64_t x_size[4] = {problem.batch, problem.c_in, h.in, w.in};
  const int64_t gy_size[4] = {problem.batch, problem.c_out, h.out, w.out};
  if (!holds_offsets(x_size, problem.x_stride) || !holds_offsets(gy_size, problem.y_stride)) return false;
  // Tap offsets count from the run's first tap, which may be outside the image.
  const double run = static_cast<double>(kDirectWeightTaps) * w.dilation * std::abs(problem.y_stride[3]);
  if (run > int64_t{1} << 30) return false;
  const int64_t runs = ceil_div(w.kernel, kDirectWeightTaps);
  const int64_t pixels = problem.batch * h.in * w.in;
  layout->num_blocks = problem.c_in * group_co * h.kernel * runs;
  if (pixels < 1 || pixels > INT32_MAX / 2 || layout->num_blocks < 1 || layout->num_blocks > INT32_MAX) return false;
  layout->h = h;
  layout->w = w;
  for (int i = 0; i < 4; ++i) {
    layout->x_stride[i] = static_cast<int32_t>(problem.x_stride[i]);
    layout->gy_stride[i] = static_cast<int32_t>(problem.y_stride[i]);
  }
  std::copy_n(problem.w_stride, 4, layout->weight_stride);
  layout->group_ci = static_cast<int32_t>(group_ci);
  layout->pixels = static_cast<int32_t>(pixels);
  layout->by_runs = FastDivmod::of(static_cast<int32_t>(runs));
  layout->by_kernel_h = FastDivmod::of(h.kernel);
  layout->by_group_co = FastDivmod::of(static_cast<int32_t>(group_co));
  layout->by_group_ci = FastDivmod::of(static_cast<int32_t>(group_ci));
  layout->by_columns = FastDivmod::of(w.in);
  layout->by_rows = FastDivmod::of(h.in);
  return true;
}

}  // namespace convt
