#include "streamed/gather_layout.h"

#include <algorithm>

#include "problem/adjoint.h"
#include "streamed/instances.h"
#include "thin/grad_input_layout.h"

namespace convt {
namespace {

// The next number of quads that is odd, as elements: neighbouring rows then begin in different banks.
int32_t odd_quads(int32_t elems) { return (elems + 3) / 4 * 4 + ((elems + 3) / 4 % 2 == 0 ? 4 : 0); }

}  // namespace

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
  if (!make_thin_tiled_layout(asked, block_positions, block_channels, layout)) return false;
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const int32_t taps = max_taps(problem.h) * max_taps(problem.w);
  if (taps > kMostGatherTaps || plan.chunk_taps > taps) return false;
  if (plan.chunk_taps < taps && plan.chunk_ci > 1) return false;  // terms follow each other, channels before taps
  layout->chunk_ci = plan.chunk_ci;
  layout->chunk_taps = plan.chunk_taps;
  layout->stages = plan.stages;
  const bool channels_last = is_channels_last(problem.x_stride);
  layout->by_channels = channels_last && (plan.chunk_ci & (plan.chunk_ci - 1)) == 0;
  while (layout->by_channels && layout->load_lanes_log2 < 3 && (2 << layout->load_lanes_log2) <= plan.chunk_ci) {
    ++layout->load_lanes_log2;
  }

  layout->table_positions = (layout->block_positions + 31) / 32 * 32;
  // Lanes that copy neighbouring channels write to different banks.
  const int32_t lanes = 1 << layout->load_lanes_log2;
  const int32_t of_channel = plan.chunk_taps * layout->block_positions;
  layout->source_pitch = lanes == 1 ? of_channel : congruent_from(of_channel, 32 / lanes, 32);
  layout->weight_pitch = odd_quads(layout->block_channels);
  layout->weight_channel_pitch = odd_quads(plan.chunk_taps * layout->weight_pitch);
  constexpr int32_t kWord = 4, kTermBytes = 4 * kWord;
  constexpr int64_t kMostBytes = 1 << 20;
  layout->bits_begin = 2 * kWord * layout->table_positions;
  const int32_t terms = plan.chunk_ci * taps;
  if (terms > kMostBytes / kTermBytes) return false;
  layout->terms_begin = (layout->bits_begin + kWord * taps * (layout->table_positions / 32) + 15) / 16 * 16;
  layout->stage_begin = layout->terms_begin + kTermBytes * terms;
  layout->stage_weight = kWord * plan.chunk_ci * layout->source_pitch;
  const int64_t stage = int64_t{layout->stage_weight} + int64_t{kWord} * plan.chunk_ci * layout->weight_channel_pitch;
  if (int64_t{plan.chunk_ci} * std::max(layout->source_pitch, layout->weight_channel_pitch) > kMostBytes) return false;
  if (layout->stage_begin + stage * plan.stages > kMostBytes) return false;
  layout->stage_bytes = static_cast<int32_t>(stage);
  layout->shared_bytes = static_cast<int32_t>(layout->stage_begin + stage * plan.stages);
  return true;
}

}  // namespace convt
