#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/shared_memory.h"
#include "plan/tap_program.h"
#include "plan/tensor_map.h"
#include "rows_sm90a/instances.h"
#include "rows_sm90a/layout.h"

namespace convt {
namespace {

constexpr int32_t kMostSourceSlots = 8;
constexpr int32_t kMostWeightSlots = 12;
constexpr int32_t kMostOfBox = 256;  // elements along a dimension of a tensor map's box
constexpr int64_t kMostTiles = int64_t{1} << 30;

bool computes(const RowsShape& shape, const ConvTProblem& problem) {
  // A stage that exceeds a group would contain channels of the next group instead of zeros.
  return shape.dtype == problem.dtype && shape.precision == problem.precision &&
         (problem.groups == 1 || make_gemm_shape(problem).k_channels % shape.channels() == 0);
}

// Counts the tiles of `images` images each. Returns false if there are too many.
bool set_grid(const ConvTProblem& problem, int32_t phases, int32_t inner, int32_t outer, int32_t images,
              RowsTile* plan) {
  const int32_t channels = ceil_div(make_gemm_shape(problem).n_channels, plan->block_n);
  plan->grid = {channels, phases, static_cast<int32_t>(problem.groups), inner, outer};
  const int64_t tiles = ceil_div(problem.batch, int64_t{images}) * outer * inner * problem.groups * phases * channels;
  plan->num_tiles = static_cast<int32_t>(std::min(tiles, kMostTiles));
  return tiles <= kMostTiles;
}

bool doubles(const Axis& axis) {
  return (axis.kernel == 3 || axis.kernel == 4) && axis.stride == 2 && axis.padding == 1 && axis.dilation == 1 &&
         axis.out == 2 * axis.in;
}

// The unit of the source that is aligned to 16 bytes, as tensor maps require, and contiguous.
enum class OnVectors { kNothing, kImages, kRows };

OnVectors source_on_vectors(const ConvTProblem& problem) {
  const int64_t* stride = source_stride(problem);
  const int64_t element = element_bytes(problem.dtype), vector = 16 / element;
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t rows = gemm.source_h, columns = gemm.source_w;
  if (stride[3] != 1 || !has_map_stride(problem.batch, stride[0], element) ||
      !has_map_stride(problem.groups * gemm.k_channels, stride[1], element)) {
    return OnVectors::kNothing;
  }
  if (columns % vector == 0 && has_map_stride(rows, stride[2], element)) return OnVectors::kRows;
  return stride[2] == columns && rows * columns % vector == 0 ? OnVectors::kImages : OnVectors::kNothing;
}

// Maximum number of rows that a tile of a strip covers. The tiles' offsets in their rows repeat after `quads_of_row`
// tiles.
int32_t most_rows(int32_t quads_of_row, int32_t strip_quads, int32_t tile_quads) {
  int32_t rows = 0;
  for (int32_t begin = 0; begin < std::min(strip_quads, quads_of_row * tile_quads); begin += tile_quads) {
    const int32_t last = std::min(begin + tile_quads, strip_quads) - 1;
    rows = std::max(rows, last / quads_of_row - begin / quads_of_row + 1);
  }
  return rows;
}

// Sets a tile's images and quads, and the source layout of a stage. Returns false if it does not fit.
bool lay_out_source(const ConvTProblem& problem, const StridedShape& shape, StridedTile* plan) {
  const int32_t most_quads = shape.quads(), step = shape.step(), vector = shape.vector();
  plan->strip_width = std::min(problem.w.in, kStridedStripWidth);
  const int32_t quads_of_row = plan->strip_width / 4;
  if (int64_t{problem.h.in} * quads_of_row > kMostTiles) return false;
  const int32_t strip_quads = problem.h.in * quads_of_row;
  plan->tile_images = 1;
  plan->tile_quads = most_quads;
  if (strip_quads <= most_quads) {
    plan->tile_images = static_cast<int32_t>(std::min<int64_t>(most_quads / strip_quads, problem.batch));
    plan->tile_quads = plan->tile_images * strip_quads;
  }
  // Pads a channel's row against bank conflicts. Eight lanes read two quads of four channels (in half precision: of
  // every other channel) at a time.
  const auto without_conflicts = [&](int32_t elements) {
    const int32_t vectors = ceil_div(elements, vector);
    if (shape.output() && shape.element() == 4) return ((vectors + 1) / 4 * 4 + 2) * vector;  // 4 * n + 2
    return (vectors | 1) * vector;
  };
  const int64_t image = int64_t{step} * step * problem.h.in * problem.w.in;  // elements
  plan->whole_images = strip_quads <= most_quads && plan->strip_width == problem.w.in &&
                       source_stride(problem)[2] == step * problem.w.in && image % vector == 0;
  // Longer images need bulk copies, which do not fill missing channels with zeros.
  plan->image_copies = plan->whole_images && without_conflicts(static_cast<int32_t>(image)) > kMostOfBox;
  if (plan->image_copies && make_gemm_shape(problem).k_channels % shape.channels() != 0) {
    plan->whole_images = plan->image_copies = false;
  }
  if (plan->whole_images) {
    plan->box_rows = 1;
    plan->pitch = without_conflicts(static_cast<int32_t>(image));
  } else {
    if (source_on_vectors(problem) != OnVectors::kRows) return false;
    const int32_t tile_rows =
        strip_quads <= most_quads ? problem.h.in : most_rows(quads_of_row, strip_quads, most_quads);
    plan->box_rows = step * (tile_rows - 1) + shape.rows();
    // A strip's box also contains one vector of each adjacent strip.
    plan->box_lead = plan->strip_width == problem.w.in ? 0 : vector;
    plan->pitch = without_conflicts(step * plan->strip_width + 2 * plan->box_lead);
  }
  plan->stage_bytes = round_up(plan->tile_images * plan->box_rows * 32 * plan->pitch, 128);
  return (plan->pitch <= kMostOfBox || plan->image_copies) && plan->box_rows <= kMostOfBox;
}

// Completes the plan from its instance and number of splits. Returns false if it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const StridedShape& shape, Plan* whole) {
  StridedTile& plan = tile_of<StridedTile>(*whole);
  plan.alternate = shape.alternate;
  if (!lay_out_source(problem, shape, &plan)) return false;
  const int32_t phases = shape.output() && !shape.all_phases() ? 2 : 1;
  // 1 if a tile contains whole strips.
  const int32_t strip_tiles = ceil_div(problem.h.in * (plan.strip_width / 4), plan.tile_quads);
  const int32_t strips = ceil_div(problem.w.in, plan.strip_width);
  if (!set_grid(problem, phases, strip_tiles, strips, plan.tile_images, &plan)) return false;
  // Clusters are placed within groups of SMs whose size is not a multiple of 4.
  const int32_t clustered = plan.splits > 2 ? device.num_sms * 7 / 8 : device.num_sms;
  if (plan.splits > 1 && (int64_t{plan.num_tiles} * plan.splits > clustered || plan.num_chunks < 2 * plan.splits))
    return false;
  if (plan.alternate && (plan.num_tiles > device.num_sms || plan.num_chunks % kStridedConsumers != 0)) return false;
  whole->num_blocks = plan.splits > 1 ? plan.num_tiles * plan.splits : std::min(plan.num_tiles, device.num_sms);

  const int32_t slot_bytes = shape.slot_bytes();
  const int32_t barrier_bytes = 16 * (kMostSourceSlots + kMostWeightSlots);
  const int64_t left = device.shared_per_block - kStridedZeroBytes - barrier_bytes;
  // As many source slots as leave as many weight slots, or 6 if a weight slot is one row of a stage.
  const int32_t slots_of_stage = shape.rows() / shape.slot_rows();
  for (int32_t slots = 2; slots <= kMostSourceSlots; ++slots) {
    const int32_t wanted = slots_of_stage == 1 ? slots : 6;
    if (slots * int64_t{plan.stage_bytes} + wanted * slot_bytes <= left) plan.source_slots = slots;
  }
  if (plan.source_slots == 0) return false;
  SharedMemory smem;
  smem.take(plan.source_slots * plan.stage_bytes);
  plan.weight_slots = static_cast<int32_t>(std::min<int64_t>((left - smem.bytes()) / slot_bytes, kMostWeightSlots));
  // Alternating warpgroups have separate source slots, and the stages that they multiply differ by less than the number
  // of source slots. This is less than a round of the weight slots, so that neither mistakes a barrier's parity for
  // that of two rounds before.
  if (plan.alternate && (plan.source_slots % 2 != 0 || plan.weight_slots < plan.source_slots)) return false;
  plan.weights_begin = smem.take(plan.weight_slots * slot_bytes);
  plan.zeros_begin = smem.take(kStridedZeroBytes);
  plan.barriers_begin = smem.take(barrier_bytes);
  whole->shared_bytes = smem.bytes();
  // CTAs or warpgroups exchange accumulators in the memory of the stages.
  return (plan.splits == 1 && !plan.alternate) || 4 * shape.sums() <= plan.zeros_begin;
}

// Sets the estimates. A stage takes the time of its products or, if longer, of its L2 reads (half precision), or the
// mean of both (TF32). In tf32x3 only products count. Fitted to 80 measurements of 8 layers on an H200, for tf32x3
// to 40.
void estimate(const ConvTProblem&, const DeviceInfo& device, const StridedShape& shape, Plan* whole) {
  const StridedTile& plan = tile_of<StridedTile>(*whole);
  const double element = shape.element();
  const double taps = shape.output() ? shape.slot_taps() : shape.kernel * shape.kernel;
  const bool split = shape.terms() > 1;
  const int32_t warpgroups = plan.alternate ? 1 : kStridedConsumers;  // per stage
  const double products = (split ? 3 : 1) * taps * 2 * warpgroups * plan.block_n / 2 / (920 * device.clock_ghz);
  const double bytes = (taps * shape.tap_bytes() + plan.stage_bytes) / (plan.alternate ? 60e3 : 43e3);
  const double beside = shape.output() && shape.kernel == 4 ? 1.16 : 1.07;  // other instructions, which delay products
  const double stage =
      split ? beside * products : std::max(products, shape.element() == 4 ? (products + bytes) / 2 : 1.1 * bytes);
  const double stores = shape.sums() * element * (shape.output() ? 3.5e-5 : 2.8e-5);
  const double chunks = std::ceil(static_cast<double>(plan.num_chunks) / plan.splits);
  const double tiles =
      std::ceil(static_cast<double>(plan.num_tiles * plan.splits) / static_cast<double>(whole->num_blocks));
  whole->compute_us = tiles * (chunks * stage + stores);
  const double pack = static_cast<double>(whole->packed_bytes) / (0.58 * (device.copy_gb_per_s * 1e3));
  whole->estimate_us = (plan.alternate ? 10.5 : 12.5) + pack + std::max(whole->compute_us, whole->memory_us / 0.71);
}

// Finds the classes of the source's rows and channels. Returns false if they are too many or tensor maps do not support
// them.
bool find_classes(const ConvTProblem& problem, WindowTile* plan) {
  const int64_t* source = source_stride(problem);
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t bytes = element_bytes(problem.dtype);
  const int64_t all_channels = problem.groups * gemm.k_channels;
  const int64_t sizes[3] = {problem.batch, all_channels, gemm.source_h};
  int32_t classes[3] = {1, 1, 1};  // of images, channels, rows
  for (int axis = 0; axis < 3; ++axis) {
    constexpr int64_t kMostBytes = kMapStrideLimit / kWindowMaps;  // a class's stride is a multiple of the source's
    if (sizes[axis] == 1) continue;
    if (source[axis] <= 0 || source[axis] * bytes >= kMostBytes) return false;
    while (source[axis] * bytes * classes[axis] % 16 != 0) classes[axis] *= 2;
    if (sizes[axis] < classes[axis]) return false;
  }
  plan->channel_classes = classes[1];
  plan->row_classes = classes[2];
  return classes[0] == 1 && classes[1] <= 4 && classes[1] * classes[2] <= kWindowMaps && all_channels % classes[1] == 0;
}

// Sets what depends only on the problem. Returns false if `window` does not support it.
bool lay_out_problem(const ConvTProblem& problem, WindowTile* plan) {
  for (const Axis* axis : {&problem.h, &problem.w}) {
    if (axis->stride != 1 || axis->dilation != 1) return false;
  }
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t *source = source_stride(problem), *result = result_stride(problem);
  // Columns of source and result must be contiguous.
  if (problem.h.kernel != kWindowKernelH || (gemm.source_w > 1 && source[3] != 1) ||
      (gemm.result_w > 1 && result[3] != 1) || !find_classes(problem, plan)) {
    return false;
  }
  const int32_t vector = 16 / static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t first_w = window_shift(problem.w, problem.direction);
  plan->begin_w = -modulo(first_w, vector);
  plan->granule = vector;
  const int64_t together = result[0] | result[1] | result[2] | plan->begin_w;
  while (plan->granule > 1 && together % plan->granule != 0) plan->granule /= 2;
  return true;
}

// Whether tiles without overlap store only whole sectors of `sector` elements.
bool on_sectors(const ConvTProblem& problem, const WindowTile& plan, int32_t sector) {
  return plan.begin_w % sector == 0 && make_gemm_shape(problem).result_w % sector == 0;
}

// Elements between channels of a stage: the tile's columns, the halo, and the largest shift of rows. Loads of windows
// have no bank conflicts, except in float32 with several channel classes.
int32_t window_pitch(const WindowShape& shape, const WindowTile& plan) {
  if (plan.channel_classes > 2 || (plan.channel_classes > 1 && shape.element() == 2)) return plan.tile_w + 16;
  const int32_t shift = shape.vector() - shape.vector() / std::max(plan.row_classes, plan.channel_classes);
  return plan.tile_w + (shape.kernel_w - 1 + shift <= 8 ? 8 : 24);
}

// Completes the plan from its instance, tile width and overlap. Returns false if it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const WindowShape& shape, Plan* whole) {
  WindowTile& plan = tile_of<WindowTile>(*whole);
  if (plan.row_classes * plan.channel_classes > 1 && !shape.reads_classes()) return false;
  plan.tile_h = shape.tile_h(plan.tile_w);
  plan.pitch = window_pitch(shape, plan);
  plan.slot_bytes = plan.row_classes * plan.box_rows() * 32 * plan.pitch + shape.weight_bytes();
  const auto barrier_bytes = [](int32_t slots) { return 16 * (slots + 2); };  // of stages and of staged results
  const int32_t staged_bytes = 2 * shape.staged_bytes();
  const int32_t left = device.shared_per_block - staged_bytes - barrier_bytes(kMostSourceSlots);
  plan.source_slots = std::min(left / plan.slot_bytes, kMostSourceSlots);
  if (plan.source_slots < 2) return false;
  SharedMemory smem;
  smem.take(plan.source_slots * plan.slot_bytes);
  plan.staged_begin = smem.take(staged_bytes);
  plan.barriers_begin = smem.take(barrier_bytes(plan.source_slots));
  whole->shared_bytes = smem.bytes();
  whole->source_on_vectors = true;
  const GemmShape gemm = make_gemm_shape(problem);
  const int32_t rest = std::max(gemm.result_w - plan.begin_w - plan.tile_w, 0);
  const int32_t column_tiles = 1 + ceil_div(rest, plan.tile_w - plan.overlap);
  const int32_t row_tiles = ceil_div(gemm.result_h, plan.tile_h);
  if (!set_grid(problem, 1, column_tiles, row_tiles, 1, &plan)) return false;
  whole->num_blocks = std::min(plan.num_tiles, device.num_sms);
  return true;
}

// Sets the estimates: the time to pack weights, and per tile a constant plus the longer of products with loads and of
// stores, plus a tenth of the time of the memory traffic. Fitted to 190 measurements of 5 layers in both directions and
// classes on an H200, for tf32x3 to 162 of 14 layers.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const WindowShape& shape, Plan* whole) {
  const WindowTile& plan = tile_of<WindowTile>(*whole);
  const GemmShape gemm = make_gemm_shape(problem);
  const bool split = shape.terms() > 1;
  const double products =
      2.0 * plan.num_chunks * kWindowKernelH * shape.kernel_w * shape.warp_rows() * shape.block_n * (split ? 3 : 1);
  const int32_t classes = plan.row_classes * plan.channel_classes;
  // Each of the three products of tf32x3 takes longer, which hides the loads.
  const double compute = (split ? (shape.block_n == 64 ? 1.16 : 1.26) * products
                                : 0.837 * products + 0.0313 * static_cast<double>(plan.num_chunks) * plan.slot_bytes) *
                             (shape.element() == 2 && shape.block_n == 32 ? 1.05 : 1) +
                         (classes > 1 ? 55.0 * plan.num_chunks * classes : 0);
  // Products hide stores of whole sectors. Other rows are stored in pieces, and their ends in smaller ones.
  const double rows = static_cast<double>(plan.tile_h) * std::min(shape.block_n, gemm.n_channels);
  const double pieces = rows * gemm.result_w / plan.grid.inner / plan.granule;
  const double stores =
      on_sectors(problem, plan, 32 / shape.element()) ? 0 : 0.475 * pieces + (plan.overlap == 0 ? 28 : 7.7) * rows;
  const double cycles = std::max(compute, stores) + 0.03 * stores + 2000;
  const double tiles = std::ceil(static_cast<double>(plan.num_tiles) / static_cast<double>(whole->num_blocks));
  whole->compute_us = tiles * cycles * 1e-3 / device.clock_ghz;
  const double pack = 2 * static_cast<double>(whole->packed_bytes) / (0.72 * (device.copy_gb_per_s * 1e3));
  whole->estimate_us = 10 + pack + std::max(whole->compute_us, whole->memory_us / 0.71) + 0.098 * whole->memory_us;
  // If tiles are few, other engines are faster relative to this one than their estimates predict.
  if (split && plan.num_tiles < device.num_sms) whole->estimate_us *= 1.15;
}

// Adds an instance's plan with the fields of `chosen`, if it fits.
template <typename Instance, typename Tile>
void add_plan(const ConvTProblem& problem, const DeviceInfo& device, const Instance& instance, const Tile& chosen,
              Candidates* plans) {
  Plan plan = begin_plan(instance.name, problem.precision, chosen);
  Tile& tile = tile_of<Tile>(plan);
  const GemmShape gemm = make_gemm_shape(problem);
  tile.block_n = instance.block_n;
  tile.num_chunks = ceil_div(gemm.k_channels, instance.channels());
  if (!lay_out(problem, device, instance, &plan)) return;
  const int64_t packed_tiles = problem.groups * tile.grid.channels * tile.num_chunks;
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel;
  if (packed_tiles > kMostTiles / taps) return;
  plan.packed_bytes = plan.workspace_bytes = packed_tiles * taps * instance.tap_bytes();
  plan.threads = Instance::kThreads;
  plan.memory_us =
      instance.element() * (input_elements(problem) + output_elements(problem)) / (device.copy_gb_per_s * 1e3);
  estimate(problem, device, instance, &plan);
  plans->push_back(plan);
}

}  // namespace

void add_strided_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction == Direction::kGradWeight || !doubles(problem.h) || !doubles(problem.w) ||
      problem.h.kernel != problem.w.kernel || problem.w.in % 4 != 0 ||
      source_on_vectors(problem) == OnVectors::kNothing || is_channels_last(result_stride(problem))) {
    return;
  }
  StridedTile tile{};
  for (const StridedInstance& instance : kStridedInstances) {
    const bool same_direction = instance.output() == (problem.direction == Direction::kForward);
    if (computes(instance, problem) && same_direction && instance.kernel == problem.h.kernel) {
      for (tile.splits = 1; tile.splits <= (instance.alternate ? 1 : kStridedMostSplits); tile.splits *= 2) {
        add_plan(problem, device, instance, tile, plans);
      }
    }
    ++tile.instance;
  }
}

void add_window_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  WindowTile tile{};
  if (problem.direction == Direction::kGradWeight || !lay_out_problem(problem, &tile)) return;
  const int32_t sector = 32 / static_cast<int32_t>(element_bytes(problem.dtype));
  for (const WindowInstance& instance : kWindowInstances) {
    if (computes(instance, problem) && instance.kernel_w == problem.w.kernel) {
      for (tile.overlap = 0; tile.overlap <= (on_sectors(problem, tile, sector) ? 0 : sector); tile.overlap += sector) {
        for (tile.tile_w = 32; tile.tile_w <= 128; tile.tile_w *= 2) {
          add_plan(problem, device, instance, tile, plans);
        }
      }
    }
    ++tile.instance;
  }
}

}  // namespace convt
