#include <algorithm>

#include "patch_sm90a/instances.h"
#include "patch_sm90a/layout.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/shared_memory.h"

namespace convt {
namespace {

constexpr int32_t kLeastSlots = 2, kMostSlots = 16;
constexpr int32_t kMostTiles = 8;  // of 64 positions, per SM; larger problems gain nothing

// Columns per box: rows of 128 bytes.
int32_t box_columns(const ConvTProblem& problem) { return static_cast<int32_t>(128 / element_bytes(problem.dtype)); }

// Whether rows of the output are aligned for stores of quads.
bool has_rows_of_quads(const ConvTProblem& problem) {
  const int64_t* y = problem.y_stride;
  const int64_t unit = std::min(problem.w.kernel, 4);
  return y[3] == 1 && y[2] % unit == 0 && (problem.c_out == 1 || y[1] % unit == 0) &&
         (problem.batch == 1 || y[0] % unit == 0) && (problem.d.out == 1 || problem.y_plane % unit == 0);
}

// Whether the positions of all planes are contiguous in a channel.
bool has_runs_of_planes(const ConvTProblem& problem) {
  return has_runs_of_positions(problem) &&
         (problem.d.in == 1 || problem.x_plane == int64_t{problem.h.in} * problem.w.in);
}

// Whether the weights are a matrix of whole boxes.
bool has_boxes(const ConvTProblem& problem) {
  const int64_t columns = problem.c_out * num_taps(problem);
  const bool dense = problem.c_in == 1 || problem.w_stride[0] == columns;
  return has_rows_of_taps(problem) && dense && columns % box_columns(problem) == 0;
}

// Times in microseconds: a launch, then for each round of CTAs the source and the tiles of columns in sequence.
// Constants are fitted to 307 measurements of 15 layers on an H200.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const PatchDirectLayout& layout, int32_t ctas,
              Plan* plan) {
  const double element = static_cast<double>(element_bytes(problem.dtype));
  const double input = element * input_elements(problem);
  const double output = element * output_elements(problem);
  const double copy = device.copy_gb_per_s * 1e3;
  plan->memory_us = (input + output + element * problem.c_in * layout.columns) / copy;
  const bool half = problem.dtype != DataType::kFloat32, odd = layout.by_image.value % 2 != 0;
  const double consumers = tile_of<PatchDirectTile>(*plan).consumers, stages = layout.num_chunks * consumers;
  const double source = half ? 0.6 + (odd ? 0.35 : 0.24) * stages : 0.78 + (odd ? 0.226 : 0.206) * stages;
  // Half-precision rows whose positions are stored separately, and quads that cover only part of a position's row.
  const double single = half && problem.w.in % (problem.w.kernel == 2 ? 4 : 2) != 0 ? 0.15 * consumers : 0;
  const double row_quads = problem.w.kernel > 4 ? (half ? 0.28 * consumers : 0.66) : 0;
  const double tile = 0.259 * stages + (half ? 0.97 : 1.3) + single + row_quads;
  const double rounds = static_cast<double>(ceil_div(plan->num_blocks, int64_t{ctas} * device.num_sms));
  const double tiles = std::min(layout.block_tiles, layout.column_tiles);
  const double shared = ctas == 1 ? 1 : half ? 1.4 : 1.5;  // two CTAs per SM have the throughput of one and a half
  plan->compute_us = 1.04 * rounds * shared * (source + tiles * tile) * 1.89 / device.clock_ghz;
  plan->estimate_us = 3.7 + std::max(plan->compute_us, 1.2 * plan->memory_us);
}

}  // namespace

bool make_patch_direct_layout(const ConvTProblem& problem, const PatchDirectTile& plan, PatchDirectLayout* layout) {
  const Axis &d = problem.d, &h = problem.h, &w = problem.w;
  const int64_t element = element_bytes(problem.dtype);
  // The two rows of a quad are rows of one plane, or planes of one row.
  const bool pairs = w.kernel == 2 && (h.kernel % 2 == 0 || (h.kernel == 1 && d.kernel % 2 == 0));
  const bool quads = w.kernel % 4 == 0;
  const int64_t image = int64_t{d.in} * h.in * w.in, positions = problem.batch * image;
  const int64_t columns = problem.c_out * num_taps(problem);
  constexpr int64_t kLimit = int64_t{1} << 30;
  if (problem.groups != 1 || !(pairs || quads) || !has_runs_of_planes(problem) || !has_rows_of_quads(problem) ||
      !has_boxes(problem))
    return false;
  if (plan.consumers < 1 || plan.consumers > 2 || plan.tiles < 1 || plan.slots < kLeastSlots) return false;
  if (positions > kLimit || columns > kLimit || problem.c_in > kLimit) return false;
  *layout = PatchDirectLayout{};
  layout->positions = static_cast<int32_t>(positions);
  layout->by_image = FastDivmod::of(static_cast<int32_t>(image));
  layout->by_row = FastDivmod::of(w.in);
  layout->by_rows = FastDivmod::of(h.in);
  layout->position_tiles = FastDivmod::of(ceil_div(layout->positions, kDirectPositions * plan.consumers));
  layout->k_channels = static_cast<int32_t>(problem.c_in);
  layout->n_channels = static_cast<int32_t>(problem.c_out);
  layout->columns = static_cast<int32_t>(columns);
  layout->column_tiles = ceil_div(layout->columns, kDirectColumns);
  layout->block_tiles = plan.tiles;
  layout->num_chunks = static_cast<int32_t>(ceil_div(problem.c_in * element, int64_t{128}));
  layout->kernel_d = d.kernel;
  layout->kernel_h = h.kernel;
  layout->kernel_w = w.kernel;
  layout->by_tap_rows = FastDivmod::of(h.kernel);
  layout->channel_quads = FastDivmod::of(static_cast<int32_t>(num_taps(problem) / 4));
  layout->row_quads = FastDivmod::of(pairs ? 1 : w.kernel / 4);
  layout->slots = plan.slots;
  if (layout->num_chunks > kDirectMostChunks) return false;
  SharedMemory smem;
  smem.take(layout->num_chunks * 128 * kDirectPositions * plan.consumers);
  layout->weights_begin = smem.take(plan.slots * kDirectStageBytes);
  layout->staged_begin = smem.take(4 * plan.consumers * kDirectStagedWarp);
  layout->barriers_begin = smem.take(16 * plan.slots + 8 * layout->num_chunks);
  layout->shared_bytes = smem.bytes();
  const int64_t blocks = int64_t{layout->position_tiles.value} * ceil_div(layout->column_tiles, plan.tiles);
  layout->num_blocks = static_cast<int32_t>(std::min(blocks, kLimit));
  return blocks < kLimit;
}

void add_patch_direct_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (!is_nonoverlapping(problem) || !is_nonoverlapping(problem.d) || problem.direction != Direction::kForward) return;
  for (int32_t index = 0; index < kNumPatchDirectInstances; ++index) {
    const PatchDirectInstance& instance = kPatchDirectInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    // Two CTAs per SM are independent: while one stores, the other uses the tensor cores.
    for (int32_t ctas = 1; ctas <= 3 - instance.consumers; ++ctas) {
      const int32_t room = shared_room(device, ctas);
      for (const int32_t tiles : {1, 2, 3, 4, 6, 8, 16}) {
        PatchDirectTile tile{index, instance.consumers, tiles, kLeastSlots};
        PatchDirectLayout layout;
        if (!make_patch_direct_layout(problem, tile, &layout) || layout.shared_bytes > room) continue;
        if (tiles > 1 && tiles > layout.column_tiles) continue;
        const int64_t of_layer = int64_t{ceil_div(layout.positions, kDirectPositions)} * layout.column_tiles;
        if (of_layer > int64_t{kMostTiles} * device.num_sms) continue;
        if (ctas > 1 && layout.num_blocks <= device.num_sms) continue;
        const int32_t more = (room - layout.shared_bytes) / (kDirectStageBytes + 16);
        tile.slots = std::clamp(layout.num_chunks * tiles, kLeastSlots, std::min(kLeastSlots + more, kMostSlots));
        make_patch_direct_layout(problem, tile, &layout);
        Plan plan = begin_plan(instance.name, problem.precision, tile);
        plan.threads = direct_threads(tile.consumers);
        plan.shared_bytes = layout.shared_bytes;
        plan.num_blocks = layout.num_blocks;
        plan.weight_on_vectors = true;
        estimate(problem, device, layout, ctas, &plan);
        plans->push_back(plan);
      }
    }
  }
}

}  // namespace convt
