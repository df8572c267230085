#include "nhwc_sm90a/estimate.h"

#include <algorithm>
#include <cmath>

#include "nhwc_sm90a/layout.h"
#include "plan/cost.h"

namespace convt {
namespace {

constexpr double kLongerHalf = 1.09;
constexpr double kShortRows = 0.92;
constexpr int32_t kMostRowScale = 64;  // result columns per position

// Cycles in which a CTA's warps gather the source of a stage: a cost per row of 32 elements, and a cost per stage. NCHW
// rows take longer if their elements are strided (gradients) or span several image rows. These and the other constants
// of gathered plans are fitted to 5,900 measured plans of 106 layers on an H100, with an error of 17 to 18 %.
double gather_cycles(const ConvTProblem& problem, const NhwcInstance& instance, const NhwcWork& work,
                     const NhwcTile& plan) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t places = plan.box_w * plan.box_h * plan.tile_n;
  const double channels = nhwc_row_bytes(instance.k_steps) / element;
  const double rows = ceil_div(places, kNhwcGatheringThreads) * kNhwcGatheringWarps * channels;
  const double apart = work.program.source_step_w - 1, breaks = 32.0 / std::min(32, plan.box_w) - 1;
  const double row = is_channels_last(source_stride(problem)) ? (element == 4 ? 15.5 : 18.4) + 0.5 * apart
                     : element == 4                           ? 8.1 + 1.5 * apart + 1.2 * breaks
                                                              : 12.8 + 0.33 * apart + 1.2 * breaks;
  return rows * row + 530;
}

// Additional cycles of tiles that are stored by rows, or in NCHW eight results at a time, compared with channels_last.
double store_cycles(const ConvTProblem& problem, const NhwcTile& plan, double results, int32_t scale_w) {
  if (plan.rows) return 0.2 * results + 480;
  if (is_channels_last(result_stride(problem))) return nhwc_has_rows(problem) ? 1.8 * results : 0;
  return (0.32 + 0.25 * (scale_w - 1) + 0.43 * (8.0 / std::min(8, plan.tile_w) - 1)) * results;
}

// Slowdown of the stores of NCHW rows. Sectors of 32 bytes that a tile fills partially, at the ends of its runs of
// columns, take as long as kPartialSector whole ones.
double longer_by_partial_sectors(const ConvTProblem& problem, const NhwcTile& plan) {
  constexpr double kPartialSector = 2.7, kSector = 32;
  if (!plan.rows || is_channels_last(result_stride(problem))) return 1;
  const bool forward = problem.direction == Direction::kForward;
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const int32_t width = forward ? problem.w.out : problem.w.in, scale_w = forward ? problem.w.stride : 1;
  const int64_t columns = int64_t{plan.tile_w} * scale_w;
  const double run = static_cast<double>(columns) * element, row = width * element;
  if (columns >= width || (std::fmod(run, kSector) == 0 && std::fmod(row, kSector) == 0)) return 1;
  const double partial = std::min(2.0, 1 + (run - element) / kSector);
  return (std::max(0.0, run / kSector - 1) + kPartialSector * partial) * kSector / run;
}

// Cycles in which each CTA writes its partial sums, and the last CTA of a tile reads them all.
double add_parts_cycles(const NhwcInstance& instance, const NhwcTile& plan) {
  constexpr double kBytesOfCycle = 40, kWaits = 3000;
  if (plan.k_splits == 1) return 0;
  return (1 + plan.k_splits) * nhwc_sum_bytes(instance.blocks, plan.block_n) / kBytesOfCycle + kWaits;
}

// Cycles per SM for rows so short that one sector of channels_last contains channels of several groups: TMA boxes, and
// results that threads store. The other estimates already include 8 % of this cost.
double short_rows_cycles(const ConvTProblem& problem, const DeviceInfo& device, const NhwcWork& work,
                         const NhwcTile& plan) {
  if (problem.groups == 1 || plan.gathers || plan.packs_source || plan.staged || plan.rows) return 0;
  if (!is_channels_last(source_stride(problem)) || !is_channels_last(result_stride(problem))) return 0;
  constexpr double kBoxRow = 2, kResultRow = 3.4;
  const int64_t most = 32 / element_bytes(problem.dtype);  // channels per sector
  const double positions = static_cast<double>(plan.num_tiles) * plan.tile_w * plan.tile_h * plan.tile_n;
  return positions / device.num_sms *
         ((work.k_channels <= most ? kBoxRow * plan.num_chunks * plan.num_windows : 0) +
          (work.n_channels <= most ? kResultRow : 0));
}

// Time of the kernel that packs the source.
double pack_source_us(const ConvTProblem& problem, const DeviceInfo& device, double bytes) {
  const bool half = element_bytes(problem.dtype) == 2;
  const double moves = !half ? 4.05 : is_channels_last(source_stride(problem)) ? 8.3 : 4.7;
  return 5.8 + moves * bytes / (device.copy_gb_per_s * 1e3);
}

// Bytes of the source that a kernel reads, and of the result. Elements of grad_output that no tap reads are not loaded,
// but a short run takes as long as 192 bytes.
struct Moved {
  double source, result;
};
Moved moved_bytes(const ConvTProblem& problem, const NhwcWork& work) {
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const double input = element * input_elements(problem), output = element * output_elements(problem);
  if (problem.direction == Direction::kForward) return {input, output};
  const double read = static_cast<double>(work.windows) / (work.program.source_step_h * work.program.source_step_w);
  return {read < 1 ? output * read * std::max(1.0, 192 / (static_cast<double>(problem.c_out) * element)) : output,
          input};
}

// Time of packing the weights, and the source if it is packed.
double pack_us(const ConvTProblem& problem, const DeviceInfo& device, const Plan& whole) {
  const NhwcTile& plan = tile_of<NhwcTile>(whole);
  const double packed = static_cast<double>(whole.packed_bytes) / 1e6;
  const double weights = packed == 0 ? 0 : problem.w_stride[1] == 1 ? 3 + 0.6 * packed : 4.5 + 1.6 * packed;
  if (!plan.packs_source) return weights;
  return pack_source_us(problem, device,
                        static_cast<double>(whole.workspace_bytes - whole.packed_bytes - plan.partials_bytes)) +
         weights;
}

// Tensor-core cycles for all windows of a chunk. In tf32x3, fragment conversion takes relatively longer with few
// channels.
double product_cycles(const NhwcInstance& instance, const NhwcWork& work) {
  const double products = work.taps * instance.k_steps * instance.blocks * instance.block_n;
  return instance.precision == Precision::kTf32x3 ? 3 * products + work.taps * instance.blocks * 3000 / instance.block_n
                                                  : 1.02 * products;
}

}  // namespace

bool nhwc_has_rows(const ConvTProblem& problem) {
  const bool forward = problem.direction == Direction::kForward;
  const int64_t* stride = result_stride(problem);
  if (!is_channels_last(stride)) return stride[3] == 1 && (!forward || problem.w.stride <= kMostRowScale);
  const int64_t channels = (forward ? problem.c_out : problem.c_in) / problem.groups;
  const int64_t vector = 16 / element_bytes(problem.dtype), of_group = problem.groups == 1 ? 0 : channels;
  return (stride[0] | stride[2] | stride[3] | of_group) % vector != 0;
}

// Times in microseconds, in execution order. Constants are fitted to 1,300 measured plans of 14 layers in both
// directions, TF32 and bfloat16, on an H200, to 1,300 of 16 layers with operands in shared memory, and to 460 in
// tf32x3, plus 5 %. Boxes with several taps read by descriptors, and two CTAs per SM, are fitted to 11,000 plans of 157
// channels_last layers. The costs of packing and of partial sectors are fitted to 5,400 packed plans of 287 layers.
void estimate_nhwc(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                   const NhwcWork& work, Plan* whole) {
  const NhwcTile& plan = tile_of<NhwcTile>(*whole);
  const bool forward = problem.direction == Direction::kForward;
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const double positions = 64.0 * kNhwcConsumers * instance.blocks;
  const double row_bytes = nhwc_row_bytes(instance.k_steps);
  const double tap_bytes = nhwc_tap_bytes(instance);

  // Cycles for all windows of a chunk: tensor cores, or shared memory, because every block of positions reads the
  // weights. In tf32x3 the two terms of the weights are read three times.
  const bool split = instance.precision == Precision::kTf32x3;
  const double reads = split ? 1.5 : 1;
  const double shared = (work.taps * (positions * row_bytes + (2 * instance.blocks * reads + 1) * tap_bytes) +
                         static_cast<double>(plan.num_windows) * plan.stage_bytes) /
                        128;
  const double cycles = product_cycles(instance, work);
  const bool boxes = nhwc_group_places(instance, plan) > 0;
  const bool shares_boxes = boxes && work.most_taps > 1;
  const double tap = split                    ? 115
                     : shares_boxes           ? 50
                     : boxes                  ? (instance.block_n > 128 ? 40 : 20)
                     : instance.block_n > 128 ? 80
                                              : 168;
  const double busy = std::max(cycles, 0.945 * shared), waits = tap * work.taps + 69 * plan.num_windows;
  const double results = static_cast<double>(plan.tile_w) * plan.tile_h * plan.tile_n *
                         static_cast<double>(std::min<int64_t>(instance.block_n, work.n_channels));
  const double together = plan.interleaved_phases_w;
  const double whole_tiles = static_cast<double>(plan.num_tiles - plan.split_tiles);
  const double ctas = instance.ctas;
  const double tiles = together * std::ceil(whole_tiles * plan.splits / (together * ctas * device.num_sms));  // per CTA
  // Results in shared memory are stored while the next tile begins, if there is one.
  const double per_byte = !plan.staged ? (boxes ? 0.045 : 0.059) : tiles > 1 ? 0.042 : boxes ? 0.06 : 0.07;
  const double stores = (shares_boxes ? 900
                         : boxes      ? 500
                                      : 1085) +
                        per_byte * element * results + (plan.splits > 1 ? 0.047 * positions * instance.block_n * 4 : 0);
  const double more = store_cycles(problem, plan, results, forward ? problem.w.stride : 1);
  const double stages = static_cast<double>(plan.num_chunks) / plan.splits;
  // Stages of a part, relative to the stages of a tile.
  const int32_t all_stages = plan.num_chunks * plan.num_windows;
  const double part = plan.k_splits == 1 ? 0 : static_cast<double>(ceil_div(all_stages, plan.k_splits)) / all_stages;
  const double cycles_of_us = device.clock_ghz * 1e3;
  double all = (tiles + part) * stages * (busy + waits) + (tiles + (part > 0 ? 1 : 0)) * (stores + more);
  if (ctas > 1) {
    // While one of two CTAs waits or stores, the other uses the tensor cores and most issue slots.
    constexpr double kWaiting = 0.4, kStoring = 0.6;
    const double longer = split ? 1.15 : boxes ? 1.1 : 1.3;
    all = longer * std::max(all, ctas * tiles * (stages * (busy + kWaiting * waits) + kStoring * (stores + more)));
  }
  whole->compute_us = (element == 2 ? kLongerHalf : 1) * (all + add_parts_cycles(instance, plan)) / cycles_of_us;

  const Moved moved = moved_bytes(problem, work);
  whole->memory_us =
      (moved.source + moved.result * longer_by_partial_sectors(problem, plan)) / (device.copy_gb_per_s * 1e3);
  const double memory = 1.06 * whole->memory_us;
  constexpr double kZeroCounters = 2;
  const double before = pack_us(problem, device, *whole) + (plan.k_splits > 1 ? kZeroCounters : 0);
  if (plan.gathers) {
    // Two CTAs per SM share the path to memory.
    const double longer = ctas > 1 ? 1.3 : 1;
    const double gather_us = longer * (tiles + part) * stages * plan.num_windows *
                             gather_cycles(problem, instance, work, plan) / cycles_of_us;
    double times[] = {whole->compute_us, gather_us, memory};
    std::sort(times, times + 3);
    whole->estimate_us = before + 1.05 * (5.5 + times[2] + (element == 4 ? 0.5 : 0.65) * times[1]);
    return;
  }
  whole->estimate_us =
      before + 1.05 * (5.5 + std::max(whole->compute_us, memory) + 0.05 * std::min(whole->compute_us, memory));
  const double short_rows = short_rows_cycles(problem, device, work, plan);
  if (short_rows > 0) whole->estimate_us = kShortRows * whole->estimate_us + short_rows / cycles_of_us;
}

double nhwc_bound_us(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                     const NhwcWork& work, const Plan& plan) {
  const NhwcGrid grid = make_nhwc_grid(problem, work.program, tile_of<NhwcTile>(plan));
  const double tiles = static_cast<double>(problem.groups * grid.channel_tiles * grid.phases_w * grid.phases_h *
                                           grid.w_tiles * grid.h_tiles * grid.image_tiles);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const auto chunks =
      static_cast<double>(ceil_div(work.k_channels, int64_t{nhwc_row_bytes(instance.k_steps) / element}));
  const double cycles = tiles / device.num_sms * chunks * product_cycles(instance, work);
  const double compute_us = (element == 2 ? kLongerHalf : 1) * cycles / (device.clock_ghz * 1e3);
  const Moved moved = moved_bytes(problem, work);
  const double memory_us = 1.06 * (moved.source + moved.result) / (device.copy_gb_per_s * 1e3);
  const double least = 1.05 * (5.5 + std::max(compute_us, memory_us) + 0.05 * std::min(compute_us, memory_us));
  return kRounded * (problem.groups > 1 ? kShortRows : 1) * (pack_us(problem, device, plan) + least);
}

}  // namespace convt
