#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/tap_program.h"
#include "plan/tensor_map.h"
#include "rows_sm90a/strided_layout.h"

namespace convt {
namespace {

constexpr int32_t kMostSourceSlots = 8;
constexpr int32_t kMostWeightSlots = 12;
constexpr int32_t kMostOfBox = 256;  // elements along a dimension of a tensor map's box

bool doubles(const Axis& axis) {
  return (axis.kernel == 3 || axis.kernel == 4) && axis.stride == 2 && axis.padding == 1 && axis.dilation == 1 &&
         axis.out == 2 * axis.in;
}

int32_t tap_bytes(const StridedInstance& instance) {
  return strided_tap_bytes(instance.block_n, instance.precision == Precision::kTf32x3);
}

// What of the source begins on 16 bytes, as a tensor map wants it, and has columns that are neighbours.
enum class OnVectors { kNothing, kImages, kRows };

OnVectors source_on_vectors(const ConvTProblem& problem) {
  const int64_t* stride = source_stride(problem);
  const int64_t element = element_bytes(problem.dtype), vector = 16 / element;
  const bool forward = problem.direction == Direction::kForward;
  const int64_t channels = forward ? problem.c_in : problem.c_out;
  const int64_t rows = forward ? problem.h.in : problem.h.out, columns = forward ? problem.w.in : problem.w.out;
  if (stride[3] != 1 || !has_map_stride(problem.batch, stride[0], element) ||
      !has_map_stride(channels, stride[1], element)) {
    return OnVectors::kNothing;
  }
  if (columns % vector == 0 && has_map_stride(rows, stride[2], element)) return OnVectors::kRows;
  return stride[2] == columns && rows * columns % vector == 0 ? OnVectors::kImages : OnVectors::kNothing;
}

// Rows that the longest tile of a strip touches. How a tile lies in its rows repeats after as many tiles as a row has
// quads.
int32_t most_rows(int32_t quads_of_row, int32_t strip_quads, int32_t tile_quads) {
  int32_t rows = 0;
  for (int32_t begin = 0; begin < std::min(strip_quads, quads_of_row * tile_quads); begin += tile_quads) {
    const int32_t last = std::min(begin + tile_quads, strip_quads) - 1;
    rows = std::max(rows, last / quads_of_row - begin / quads_of_row + 1);
  }
  return rows;
}

// Everything that follows from the instance and the number of splits, or false where it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const StridedInstance& instance, int32_t splits,
             Plan* whole) {
  StridedTile& plan = tile_of<StridedTile>(*whole);
  const int32_t most_quads = strided_quads(instance.alternate);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t step = strided_step(instance.form), vector = 16 / element;
  const bool forward = instance.form == StridedForm::kOutput;
  plan.block_n = instance.block_n;
  plan.alternate = instance.alternate;
  plan.splits = splits;
  plan.strip_width = std::min(problem.w.in, kStridedStripWidth);
  const int32_t quads_of_row = plan.strip_width / 4;
  if (int64_t{problem.h.in} * quads_of_row > (int64_t{1} << 30)) return false;
  const int32_t strip_quads = problem.h.in * quads_of_row;
  plan.tile_images = 1;
  plan.tile_quads = most_quads;
  if (strip_quads <= most_quads) {
    plan.tile_images = static_cast<int32_t>(std::min<int64_t>(most_quads / strip_quads, problem.batch));
    plan.tile_quads = plan.tile_images * strip_quads;
  }
  // Lanes 0 to 7 read two quads of four channels at a time, in half precision of every other channel.
  const auto without_conflicts = [&](int32_t elements) {
    const int32_t vectors = ceil_div(elements, vector);
    if (forward && element == 4) return ((vectors + 1) / 4 * 4 + 2) * vector;  // 2 more than a multiple of 4
    return (vectors | 1) * vector;
  };
  const int64_t image = int64_t{step} * step * problem.h.in * problem.w.in;  // elements
  const int64_t k_channels = (forward ? problem.c_in : problem.c_out) / problem.groups;
  plan.whole_images = strip_quads <= most_quads && plan.strip_width == problem.w.in &&
                      source_stride(problem)[2] == step * problem.w.in && image % vector == 0;
  // A longer image is one copy, if no channel beyond the last would have to be zero.
  plan.image_copies = plan.whole_images && without_conflicts(static_cast<int32_t>(image)) > kMostOfBox;
  if (plan.image_copies && k_channels % strided_channels(element) != 0) plan.whole_images = plan.image_copies = false;
  if (plan.whole_images) {
    plan.box_rows = 1;
    plan.pitch = without_conflicts(static_cast<int32_t>(image));
  } else {
    if (source_on_vectors(problem) != OnVectors::kRows) return false;
    const int32_t tile_rows =
        strip_quads <= most_quads ? problem.h.in : most_rows(quads_of_row, strip_quads, most_quads);
    plan.box_rows = step * (tile_rows - 1) + strided_rows(instance.form, instance.kernel);
    // Strips have their neighbours' columns beside them, on vectors.
    plan.box_lead = plan.strip_width == problem.w.in ? 0 : vector;
    plan.pitch = without_conflicts(step * plan.strip_width + 2 * plan.box_lead);
  }
  if ((plan.pitch > kMostOfBox && !plan.image_copies) || plan.box_rows > kMostOfBox) return false;

  const StridedGrid grid = make_strided_grid(problem, plan);
  plan.num_tiles =
      int64_t{grid.channel_tiles} * grid.phase_tiles * grid.groups * grid.strip_tiles * grid.strips * grid.image_tiles;
  plan.num_chunks = static_cast<int32_t>(ceil_div(k_channels, int64_t{strided_channels(element)}));
  // Clusters lie within groups of SMs that are no multiple of 4 SMs.
  const int32_t clustered = splits > 2 ? device.num_sms * 7 / 8 : device.num_sms;
  if (splits > 1 && (plan.num_tiles * splits > clustered || plan.num_chunks < 2 * splits)) return false;
  if (plan.alternate && (plan.num_tiles > device.num_sms || plan.num_chunks % kStridedConsumers != 0)) return false;
  whole->num_blocks = splits > 1 ? plan.num_tiles * splits : std::min<int64_t>(plan.num_tiles, device.num_sms);

  const int64_t box_bytes = int64_t{plan.tile_images} * plan.box_rows * 32 * plan.pitch;
  const int32_t slot_bytes = strided_slot_taps(instance.form, instance.kernel) * tap_bytes(instance);
  const int32_t barrier_bytes = kStridedZeroBytes + 16 * (kMostSourceSlots + kMostWeightSlots);
  const int64_t left = device.shared_per_block - barrier_bytes;
  plan.stage_bytes = static_cast<int32_t>(ceil_div(box_bytes, int64_t{128}) * 128);
  // As many stages of the source as leave as many of the weights, or 6 rows of them.
  const int32_t slots_of_stage = strided_rows(instance.form, instance.kernel) / strided_slot_rows(instance.form);
  plan.source_slots = 0;
  for (int32_t slots = 2; slots <= kMostSourceSlots; ++slots) {
    const int32_t wanted = slots_of_stage == 1 ? slots : 6;
    if (slots * int64_t{plan.stage_bytes} + wanted * slot_bytes <= left) plan.source_slots = slots;
  }
  if (plan.source_slots == 0) return false;
  plan.weights_begin = plan.source_slots * plan.stage_bytes;
  plan.weight_slots =
      static_cast<int32_t>(std::min<int64_t>((left - plan.weights_begin) / slot_bytes, kMostWeightSlots));
  // Warpgroups that alternate may be as many stages apart as there are slots of the source. Each has slots of its own,
  // and they are no round of the weights' slots apart: so neither takes a barrier's parity for that of two rounds
  // before.
  if (plan.alternate && (plan.source_slots % 2 != 0 || plan.weight_slots < plan.source_slots)) return false;
  plan.zeros_begin = plan.weights_begin + plan.weight_slots * slot_bytes;
  plan.barriers_begin = plan.zeros_begin + kStridedZeroBytes;
  whole->shared_bytes = plan.zeros_begin + barrier_bytes;
  // Accumulators of CTAs, or of warpgroups, are exchanged where stages were.
  const int32_t sum_bytes = strided_sum_bytes(instance.form, instance.kernel, instance.block_n, plan.alternate);
  if ((splits > 1 || plan.alternate) && sum_bytes > plan.zeros_begin) return false;
  return true;
}

// Times in microseconds: one kernel packs the weights; in the other's stages half precision waits for L2 alone, tf32 as
// long for its products, tf32x3 for these alone. Constants from a fit to 80 measurements of 8 layers on an H200, for
// tf32x3 to 40.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const StridedInstance& instance, Plan* whole) {
  const StridedTile& plan = tile_of<StridedTile>(*whole);
  const double element = static_cast<double>(element_bytes(problem.dtype));
  const bool forward = instance.form == StridedForm::kOutput;
  const double taps = forward ? strided_slot_taps(instance.form, instance.kernel) : instance.kernel * instance.kernel;
  const bool split = instance.precision == Precision::kTf32x3;
  const int32_t warpgroups = plan.alternate ? 1 : kStridedConsumers;  // of a stage
  const double products = (split ? 3 : 1) * taps * 2 * warpgroups * plan.block_n / 2 / (920 * device.clock_ghz);
  const double bytes = (taps * tap_bytes(instance) + plan.stage_bytes) / (plan.alternate ? 60e3 : 43e3);
  const double beside = forward && instance.kernel == 4 ? 1.16 : 1.07;  // what does not run while products do
  const double stage =
      split ? beside * products : std::max(products, element == 4 ? (products + bytes) / 2 : 1.1 * bytes);
  const double sums =
      4.0 * strided_quads(plan.alternate) * plan.block_n * strided_phases(instance.form, instance.kernel);
  const double stores = sums * element * (forward ? 3.5e-5 : 2.8e-5);
  const double chunks = std::ceil(static_cast<double>(plan.num_chunks) / plan.splits);
  const double tiles =
      std::ceil(static_cast<double>(plan.num_tiles * plan.splits) / static_cast<double>(whole->num_blocks));
  whole->compute_us = tiles * (chunks * stage + stores);

  const double input = element * input_elements(problem);
  const double output = element * output_elements(problem);
  const double copy = device.copy_gb_per_s * 1e3;
  whole->memory_us = (input + output) / copy;
  const double pack = static_cast<double>(whole->packed_bytes) / (0.58 * copy);
  whole->estimate_us = (plan.alternate ? 10.5 : 12.5) + pack + std::max(whole->compute_us, whole->memory_us / 0.71);
}

}  // namespace

StridedGrid make_strided_grid(const ConvTProblem& problem, const StridedTile& plan) {
  const bool forward = problem.direction == Direction::kForward;
  const int64_t n_channels = (forward ? problem.c_out : problem.c_in) / problem.groups;
  const int32_t strip_quads = problem.h.in * (plan.strip_width / 4);
  StridedGrid grid;
  grid.channel_tiles = static_cast<int32_t>(ceil_div(n_channels, int64_t{plan.block_n}));
  grid.phase_tiles = forward && problem.h.kernel == 4 ? 2 : 1;
  grid.groups = static_cast<int32_t>(problem.groups);
  grid.strip_tiles = strip_quads <= strided_quads(plan.alternate) ? 1 : ceil_div(strip_quads, plan.tile_quads);
  grid.strips = ceil_div(problem.w.in, plan.strip_width);
  grid.image_tiles = ceil_div(problem.batch, int64_t{plan.tile_images});
  return grid;
}

void add_strided_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction == Direction::kGradWeight) return;
  if (!doubles(problem.h) || !doubles(problem.w) || problem.h.kernel != problem.w.kernel || problem.w.in % 4 != 0 ||
      source_on_vectors(problem) == OnVectors::kNothing || is_channels_last(result_stride(problem))) {
    return;
  }
  const bool forward = problem.direction == Direction::kForward;
  // Beyond a group's last channel a stage would have the next group's, not zeros.
  const int64_t k_channels = (forward ? problem.c_in : problem.c_out) / problem.groups;
  if (problem.groups > 1 && k_channels % strided_channels(static_cast<int32_t>(element_bytes(problem.dtype))) != 0) {
    return;
  }
  TapProgram program;  // by which the weights are packed
  if (!make_tap_program(problem, &program)) return;
  const StridedForm form = forward ? StridedForm::kOutput : StridedForm::kGather;
  for (int32_t index = 0; index < kNumStridedInstances; ++index) {
    const StridedInstance& instance = kStridedInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision || instance.form != form ||
        instance.kernel != problem.h.kernel) {
      continue;
    }
    for (int32_t splits = 1; splits <= (instance.alternate ? 1 : kStridedMostSplits); splits *= 2) {
      Plan plan = begin_plan(instance.name, problem.precision, StridedTile{});
      StridedTile& tile = tile_of<StridedTile>(plan);
      tile.instance = index;
      if (!lay_out(problem, device, instance, splits, &plan)) continue;
      const StridedGrid grid = make_strided_grid(problem, tile);
      const int64_t packed_tiles = problem.groups * grid.channel_tiles * tile.num_chunks;
      constexpr int64_t kLimit = int64_t{1} << 30;
      if (tile.num_tiles > kLimit || packed_tiles > kLimit / program.total_taps) continue;
      plan.packed_bytes = plan.workspace_bytes = packed_tiles * program.total_taps * tap_bytes(instance);
      plan.threads = kStridedThreads;
      estimate(problem, device, instance, &plan);
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
