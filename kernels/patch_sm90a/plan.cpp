#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "patch_sm90a/instances.h"
#include "patch_sm90a/layout.h"
#include "plan/cost.h"
#include "plan/shared_memory.h"
#include "plan/tap_program.h"

namespace convt {
namespace {

constexpr int32_t kMostSourceSlots = 8;
constexpr int64_t kMostChunks = 1 << 28;
constexpr int32_t kWeightBytes = 4 * kPatchTaps * kPatchBlockBytes;  // limit of the weights' shared memory

// Positions of whole rows per warpgroup. The number is even, because threads read pairs.
int32_t whole_rows(const ConvTProblem& problem) {
  const int32_t rows = kPatchPositions / problem.w.in;
  return (problem.w.in % 2 == 0 ? rows : rows / 2 * 2) * problem.w.in;
}

// Whether pairs of columns are stored in tiles of whole rows: if rows are not aligned to sectors, and whole rows fill
// most of a warpgroup's positions. A tile is then one contiguous run, and only its ends share sectors with others.
// Tiles must be aligned to the source's vectors.
bool has_whole_rows(const StackedProblem& problem, const PatchInstance& instance) {
  const int64_t element = element_bytes(problem.dtype);
  return instance.form == PatchForm::kPairs && instance.blocks == kPatchTaps && problem.w.out * element % 32 != 0 &&
         whole_rows(problem) >= kPatchPositions * 7 / 8 &&
         whole_rows(problem) * element % patch_source_vector(problem) == 0;
}

// Completes the plan from its instance, CTAs per SM and number of splits. Returns false if it does not fit, or if a
// second CTA per SM would be idle or could not keep its weights resident.
bool lay_out(const StackedProblem& problem, const DeviceInfo& device, const PatchInstance& instance, int32_t ctas,
             int32_t splits, Plan* whole) {
  PatchTile& plan = tile_of<PatchTile>(*whole);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  plan.blocks = instance.blocks;
  plan.consumers = instance.consumers;
  plan.whole_rows = has_whole_rows(problem, instance);
  // In rows of 16 bytes in float32, 8 in half precision.
  plan.staged = plan.whole_rows || instance.form == PatchForm::kQuads ||
                (instance.form == PatchForm::kPairs && problem.w.in % 2 == 0);
  plan.step = plan.whole_rows ? whole_rows(problem) : kPatchPositions;
  plan.tile_positions = plan.step * plan.consumers;
  // A stage has 128 bytes per position: of channels, or if the kernel gathers, of the channels of four taps of the
  // patch.
  const bool gathers = instance.form == PatchForm::kGather;
  const int64_t k_channels = (gathers ? problem.c_out : problem.c_in) / problem.groups;
  const int64_t of_stage = 128 / element / (gathers ? kPatchTaps : 1);
  const int32_t of_patch = gathers ? problem.h.kernel * problem.w.kernel / kPatchTaps : 1;
  const int64_t chunks = ceil_div(k_channels, of_stage) * of_patch;
  if (chunks > kMostChunks) return false;
  plan.num_chunks = static_cast<int32_t>(chunks);
  plan.splits = splits;
  const PatchGrid grid = make_patch_grid(problem, plan);
  const int64_t columns = int64_t{grid.tap_tiles} * grid.channel_tiles * grid.groups;
  plan.num_tiles = columns * grid.position_tiles;
  // A whole number of CTAs per column of tiles keeps each CTA in one column, so that its weights can stay resident.
  // Clusters are placed within regions of the GPU whose number of SMs is not a multiple of 4.
  const int64_t clustered = int64_t{ctas} * (splits > 2 ? device.num_sms * 7 / 8 : device.num_sms);
  if (splits > 1 && (plan.num_tiles * splits > clustered || plan.num_chunks < 2 * splits)) return false;
  const int64_t most = int64_t{ctas} * device.num_sms, each = std::max<int64_t>(1, most / columns);
  whole->num_blocks =
      splits > 1 ? plan.num_tiles * splits : std::min(plan.num_tiles, columns <= most ? each * columns : most);
  const bool split = instance.precision == Precision::kTf32x3;
  const int32_t slot_blocks = patch_slot_blocks(split, plan.blocks);
  const int32_t slot_bytes = slot_blocks * patch_block_bytes(split);
  const int32_t most_slots = kWeightBytes / slot_bytes / (splits > 1 ? ctas : 1),
                tile_slots = plan.num_chunks * (plan.blocks / slot_blocks);
  plan.resident = splits == 1 && tile_slots <= most_slots && whole->num_blocks % columns == 0;
  plan.weight_slots = plan.resident ? tile_slots : most_slots;
  const int32_t stage_bytes = patch_stage_bytes(instance.form, plan.consumers * kPatchPositions, element);
  const int32_t weight_bytes = plan.weight_slots * slot_bytes;
  const int32_t staged_bytes = plan.staged ? plan.consumers * patch_staged_elements(element) * element : 0;
  const int32_t bias_bytes = plan.consumers * 4 * kPatchChannels * 4;  // per warp
  const int32_t barrier_bytes = 16 * (kMostSourceSlots + plan.weight_slots) + bias_bytes;
  const int32_t left = shared_room(device, ctas) - weight_bytes - staged_bytes - barrier_bytes;
  plan.source_slots = std::min(left / stage_bytes, kMostSourceSlots);
  if (plan.source_slots < 2 ||
      (ctas > 1 && ((!plan.resident && splits == 1) || plan.num_tiles * splits <= device.num_sms)))
    return false;
  SharedMemory smem;
  smem.take(plan.source_slots * stage_bytes);
  plan.weights_begin = smem.take(weight_bytes);
  plan.staged_begin = smem.take(staged_bytes);
  plan.barriers_begin = smem.take(barrier_bytes);
  whole->shared_bytes = smem.bytes();
  if (splits > 1 && plan.consumers * plan.blocks * kPatchPositions * kPatchChannels * 4 > plan.barriers_begin)
    return false;
  return true;
}

// A CTA's cycles if the kernel gathers: the slowest unit of a stage, and the stores, after which the next tile is
// loaded. If CTAs share a tile, also their exchange of accumulators. Constants are fitted to 220 measurements of 11
// layers on an H200.
double gather_cycles(const StackedProblem& problem, const PatchTile& plan, double tiles) {
  const double consumers = plan.consumers, chunks = std::ceil(static_cast<double>(plan.num_chunks) / plan.splits);
  const bool split = problem.precision == Precision::kTf32x3, half = problem.precision == Precision::kHalf;
  const double rate = !split ? 0.88 : consumers == 1 ? 0.60 : 0.76;
  const double products = chunks * (split ? 3 : 1) * 128 * plan.blocks * consumers / rate;
  const double weights = plan.resident ? 0 : static_cast<double>(plan.blocks) * patch_block_bytes(split);
  const double bytes = (128 * kPatchPositions * consumers + weights) / (split ? 64 : 40);
  const int32_t vector = patch_source_vector(problem);
  const double of_vectors = vector == 16 ? 0 : vector == 8 ? 100 : vector == 4 ? (half ? 500 : 2500) : 4500;
  // A source that only one column of tiles reads comes from memory instead of L2.
  const double far = make_patch_grid(problem, plan).channel_tiles == 1 ? 1.3 : 1;
  const double fetch = chunks * std::max(bytes, 350 + (410 + of_vectors) * consumers) * far;
  const double stores = 1900 + (half ? 500.0 : 1600.0) * plan.blocks / plan.splits;
  const double sent =
      4.0 * kPatchPositions * kPatchChannels * consumers * plan.blocks * (plan.splits - 1) / plan.splits;
  // CTAs of a large cluster start at different times, as SMs become free.
  const double exchange = plan.splits > 1 ? (plan.splits > 4 ? 5900 : 1900) + sent / 11 : 0;
  return std::max(products, fetch) + exchange + stores + (tiles - 1) * std::max(products + stores, fetch);
}

// Times in microseconds: packing of the weights, then tiles. A tile takes the time of its slowest unit, a third of the
// others, and its stores. In tf32x3 the three products dominate and hide everything except stores. Constants are fitted
// to 120 measurements of 8 layers on an H200, and to 30 of split operands.
void estimate(const StackedProblem& problem, const DeviceInfo& device, PatchForm form, Plan* whole) {
  const PatchTile& plan = tile_of<PatchTile>(*whole);
  const bool gathers = form == PatchForm::kGather;
  const double element = static_cast<double>(element_bytes(problem.dtype));
  const double stages = static_cast<double>(plan.consumers) * plan.num_chunks;  // of 64 positions
  const double products = 128 * plan.blocks * stages / 0.74;
  const double weights = plan.resident ? 0 : static_cast<double>(plan.blocks) * kPatchBlockBytes;
  const double bytes = (128 * kPatchPositions * stages + weights * plan.num_chunks) / 64;
  const int32_t vector = patch_source_vector(problem);
  const double loads = stages * (vector == 16 ? 0 : vector == 8 ? 600 : vector == 4 ? 1250 : 3700);
  const double limit = std::max({products, bytes, loads});
  // A thread stores up to 16 bytes at once.
  const double of_store = std::min(16 / element, 8.0);
  const double stores = 250.0 * plan.whole_rows + 35 * plan.blocks * kPatchChannels / 2 / of_store;
  double cycles = limit + 0.34 * (products + bytes + loads - limit) + 1910 + stores;
  if (problem.precision == Precision::kTf32x3) {
    const double rate = plan.consumers == 1 ? 0.56 : plan.blocks < kPatchTaps ? 0.73 : 0.85;
    cycles = std::max(3 * 128 * plan.blocks * stages / rate, loads) + 900 + 2300 * plan.consumers;
  }
  const double tiles = std::ceil(static_cast<double>(plan.num_tiles) / static_cast<double>(whole->num_blocks));
  cycles = gathers ? gather_cycles(problem, plan, tiles) : 1.08 * tiles * cycles;
  if (whole->num_blocks > device.num_sms) cycles *= 1.08;
  // Unaligned pixels are stored channel by channel.
  const bool alone = form == PatchForm::kChannels && result_stride(problem)[3] * element_bytes(problem.dtype) % 16 != 0;
  if (alone) cycles += 2.4 * output_elements(problem) / device.num_sms;
  whole->compute_us = (cycles + 2160) * 1e-3 / device.clock_ghz;

  const double input = element * input_elements(problem);
  const double output = element * output_elements(problem);
  const double copy = device.copy_gb_per_s * 1e3;
  whole->memory_us = (input + output) / copy;
  const double share = plan.staged || gathers ? 0.85 : 0.71;  // of the copy bandwidth
  const double pack = 2 * static_cast<double>(whole->packed_bytes) / (0.72 * copy);
  const bool half_pairs = problem.precision == Precision::kHalf && form == PatchForm::kPairs && !plan.whole_rows;
  whole->estimate_us = 8.5 + pack + (half_pairs ? 1.13 : 1.0) * std::max(whole->compute_us, whole->memory_us / share);
}

// The kernels' form for a problem. Returns false if there is none.
bool form_of(const StackedProblem& problem, PatchForm* form) {
  const bool by_channels = is_channels_last(source_stride(problem));
  if (by_channels != is_channels_last(result_stride(problem)) || patch_source_vector(problem) == 0) return false;
  const bool pairs = problem.w.kernel == 2 && problem.plane_rows % 2 == 0;
  const bool quads = problem.w.kernel % 4 == 0 || (by_channels && problem.paired);
  if (problem.direction == Direction::kGradInput) {
    *form = PatchForm::kGather;
    return !by_channels && pairs;
  }
  *form = by_channels ? PatchForm::kChannels : pairs ? PatchForm::kPairs : PatchForm::kQuads;
  return problem.direction == Direction::kForward && (pairs || quads);
}

}  // namespace

bool stack_patches(const ConvTProblem& problem, StackedProblem* stacked) {
  if (!stack_planes(problem, stacked)) return false;
  const int64_t channels = problem.c_out / problem.groups;
  const int64_t blocks = ceil_div(channels, int64_t{kPatchChannels});
  const bool pairs = problem.h.kernel == 2 && problem.w.kernel == 2;
  if (pairs && ceil_div(2 * channels, int64_t{kPatchChannels}) < 2 * blocks) pair_channels(stacked);
  return true;
}

PatchGrid make_patch_grid(const ConvTProblem& problem, const PatchTile& plan) {
  const bool forward = problem.direction == Direction::kForward;
  const int64_t n_channels = (forward ? problem.c_out : problem.c_in) / problem.groups;
  PatchGrid grid;
  grid.tap_tiles = forward ? problem.h.kernel * problem.w.kernel / plan.blocks : 1;
  grid.channel_blocks = static_cast<int32_t>(ceil_div(n_channels, int64_t{kPatchChannels}));
  grid.channel_tiles = ceil_div(grid.channel_blocks, forward ? 1 : plan.blocks);
  grid.groups = static_cast<int32_t>(problem.groups);
  grid.position_tiles = ceil_div(problem.batch * problem.h.in * problem.w.in, int64_t{plan.tile_positions});
  return grid;
}

int32_t patch_source_vector(const StackedProblem& problem) {
  const int64_t* stride = source_stride(problem);
  const bool forward = problem.direction == Direction::kForward;
  const int64_t element = element_bytes(problem.dtype), image = int64_t{problem.h.in} * problem.w.in;
  const int64_t channels = (forward ? problem.c_in : problem.c_out) / problem.groups;
  int64_t together;  // bitwise or of all offsets that must be multiples of a vector
  if (is_channels_last(stride)) {
    if (forward && (stride[2] != problem.w.in * stride[3] || stride[0] != image * stride[3] ||
                    problem.x_batch != problem.planes * stride[0])) {
      return 0;
    }
    together = stride[0] | stride[2] | stride[3] | channels;
  } else if (forward) {
    if (!has_runs_of_positions(problem)) return 0;
    together = stride[0] | stride[1] | image;
  } else {
    if (stride[3] != 1) return 0;
    together = stride[0] | stride[1] | stride[2] | problem.w.out;
  }
  together |= forward ? problem.x_batch : problem.y_batch | problem.y_plane;
  for (const int32_t bytes : {16, 8, 4, 2}) {
    if (together % bytes * element % bytes == 0) return bytes;
  }
  return 0;
}

void add_patch_plans(const ConvTProblem& asked, const DeviceInfo& device, Candidates* plans) {
  StackedProblem problem;
  if (!stack_patches(asked, &problem) || !is_nonoverlapping(problem)) return;
  TapProgram program;  // determines the order of packed weights
  PatchForm form;
  if (!form_of(problem, &form) || !make_tap_program(problem, &program)) return;
  for (int32_t index = 0; index < kNumPatchInstances; ++index) {
    const PatchInstance& instance = kPatchInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision || instance.form != form) continue;
    const int32_t most_splits =
        form == PatchForm::kGather && instance.consumers == kPatchSharingConsumers ? kPatchMostSplits : 1;
    // Two CTAs per SM are independent: while one stores, the other uses the tensor cores.
    for (int32_t ctas = 1; ctas <= 3 - instance.consumers; ++ctas) {
      for (int32_t splits = 1; splits <= most_splits; splits *= 2) {
        Plan plan = begin_plan(instance.name, problem.precision, PatchTile{});
        PatchTile& tile = tile_of<PatchTile>(plan);
        tile.instance = index;
        if (!lay_out(problem, device, instance, ctas, splits, &plan)) continue;
        const PatchGrid grid = make_patch_grid(problem, tile);
        const int64_t tap_tiles = form == PatchForm::kGather ? 1 : int64_t{grid.tap_tiles} * instance.blocks;
        const int64_t packed_blocks = problem.groups * grid.channel_blocks * tile.num_chunks * tap_tiles;
        const int64_t positions = problem.batch * problem.h.in * problem.w.in;
        constexpr int64_t kLimit = int64_t{1} << 30;
        if (tile.num_tiles > kLimit || packed_blocks > kLimit || positions > kLimit) continue;
        plan.packed_bytes = plan.workspace_bytes =
            packed_blocks * patch_block_bytes(problem.precision == Precision::kTf32x3);
        plan.threads = patch_threads(instance.consumers);
        estimate(problem, device, form, &plan);
        plans->push_back(plan);
      }
    }
  }
}

}  // namespace convt
