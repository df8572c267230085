// Candidates of the exact-order engine for the forward pass and the gradient of the input, with estimated times. They
// cover every instance and tile that fits the problem.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "plan/cost.h"
#include "problem/adjoint.h"
#include "problem/fuse.h"
#include "problem/volume.h"
#include "simt/layout.h"

namespace convt {

void add_simt_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans);

namespace {

constexpr int32_t kMaxBlockCo = 64;
constexpr int32_t kThreadsPerGroup = 8;  // minimum: a warp contains at most 4 channel groups
constexpr int64_t kFewChannels = 4;
constexpr int64_t kMostChannels = int64_t{1} << 30;  // with taps along the depth as channels
constexpr int32_t kTableBytes = 1024;  // static shared memory of a CTA, rounded up

// Order of sums for a precision class. Tensor-core classes get the stricter ieee order.
Precision served_order(const ConvTProblem& problem) {
  if (problem.precision == Precision::kIeee) return Precision::kIeee;
  const bool half = problem.dtype == DataType::kFloat16 || problem.dtype == DataType::kBFloat16;
  if (problem.precision == Precision::kHalf && half) return Precision::kIeee;
  if (problem.precision == Precision::kHalf || problem.dtype != DataType::kFloat32) {
    throw std::invalid_argument(std::string("convt_ext: precision '") + name_of(problem.precision) +
                                "' is defined for " +
                                (problem.precision == Precision::kHalf ? "float16 and bfloat16" : "float32") +
                                ", got " + name_of(problem.dtype) + "; use precision='ieee' or leave it unset");
  }
  const bool forward = problem.direction == Direction::kForward;  // gradients have one order in all classes
  return forward && problem.precision == Precision::kAten ? Precision::kAten : Precision::kIeee;
}

int32_t registers_of(const Instance& instance) {
  if (instance.dtype == DataType::kFloat64) return 168;
  return instance.thread_co == 2 ? 96 : 128;
}

// Fills plan->compute_us, memory_us and estimate_us.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, Plan* plan) {
  const SimtTile& tile = tile_of<SimtTile>(*plan);
  const Instance& instance = kInstances[tile.instance];
  const TileShape shape{tile.block_co, tile.tile_n, tile.tile_h, tile.tile_w, tile.phases_w};
  const TileGrid grid = make_tile_grid(problem, shape);
  const double threads = plan->threads, warps = threads / 32;
  const double group_c_in = static_cast<double>(problem.c_in / problem.groups);
  const bool tap_sums = instance.precision == Precision::kAten;
  const bool float32 = instance.dtype == DataType::kFloat32;
  // The op `plan` does not know the strides of a gradient's operands, so gradient plans must not depend on them.
  const bool forward = problem.direction == Direction::kForward;

  // Average number of taps of the phases that have any.
  const double phases_h = num_phases(problem.h), phases_w = std::min(tile.phases_w, num_phases(problem.w));
  const double filled_h = std::min<double>(phases_h, problem.h.kernel),
               filled_w = std::min<double>(problem.w.stride, problem.w.kernel) / problem.w.stride;
  const double taps_h = problem.h.kernel / filled_h;
  const double taps_w = std::max(1.0, static_cast<double>(problem.w.kernel) / problem.w.stride);
  const double share_h = filled_h / phases_h;  // fraction of H phases with taps; the others only store

  const double kh = std::min<double>(taps_h, tile.chunk_kh), kw = std::min<double>(taps_w, tile.chunk_kw);
  const Window rows = row_window(std::max(1, static_cast<int32_t>(kh + 0.5)), shift_step(problem.h),
                                 problem.h.position_step, tile.tile_h);
  const Window columns = column_window(std::max(1, static_cast<int32_t>(kw + 0.5)), shift_step(problem.w),
                                       problem.w.position_step, tile.tile_w);

  // Warp instructions of one CTA, per input channel and W phase. A multiply-add costs more than an issue slot, because
  // its three operands rarely arrive in one cycle. Short runs are worst.
  const double product_slots = taps_w > 1 && !tap_sums ? 1.1 : 1.3;
  const double multiply_adds = taps_h * taps_w * instance.thread_co * 4 * instance.quads;
  const double runs = tap_sums ? taps_h * taps_w : taps_h * std::max(1.0, taps_w / (columns.copies ? 1 : 4));
  const double weight_reads = taps_h * taps_w * std::max(1.0, instance.thread_co / 4.0);
  // Rows of fewer than 8 quads cause bank conflicts within a warp.
  const double window_reads = runs * instance.quads * (taps_w > 1 && !tap_sums ? 2 : 1) * (tile.tile_w < 32 ? 2 : 1);
  const double multiply_slots = product_slots * multiply_adds + weight_reads + window_reads + 10 * runs;

  // Loads: elements of a channel per thread times instructions per element.
  const double reload = tap_sums ? taps_h * taps_w : 1;  // tap sums load the input once per tap
  const double positions = static_cast<double>(tile.tile_n) * rows.extent * input_pitch(columns.extent);
  const double weights = tile.block_co * kh * kw;
  const bool input_vectors = float32 && forward && problem.w.in % 4 == 0 && problem.x_stride[3] == 1 && !columns.copies;
  const bool weight_vectors =
      float32 && forward && problem.h.stride == 1 && problem.w.stride == 1 && tile.fused_w == 1 && !tap_sums;
  constexpr double kCopySlots = 9.5, kVectorSlots = 2, kWeightVectorSlots = 4.5;
  const double input_slots = positions / threads * (input_vectors ? kVectorSlots : kCopySlots) * reload;
  const double weight_slots = weights / threads * (weight_vectors ? kWeightVectorSlots : kCopySlots) * reload;
  // Vectors of weights pass through registers in batches of four. Each batch waits for its loads.
  const double batches = weight_vectors ? std::ceil(weights * tile.chunk_ci / 4 / threads / 4) : 0;
  const double stages =
      std::ceil(group_c_in / tile.chunk_ci) * reload * (tap_sums ? 1 : std::ceil(taps_h / kh) * std::ceil(taps_w / kw));
  const double lists = tap_sums ? reload : stages > std::ceil(group_c_in / tile.chunk_ci) ? stages : 1;
  const double list_slots = 200 + 45 * (positions + weights) / threads;
  const double phase_slots =
      group_c_in * (multiply_slots + input_slots + weight_slots) + stages * (250 + 200 * batches) + lists * list_slots;

  const double outputs = static_cast<double>(tile.block_co) * tile.tile_n * tile.tile_h * tile.tile_w / threads;
  const double store_runs = static_cast<double>(tile.block_co) / tile.fused_w * tile.tile_n * tile.tile_h / warps;
  const double store_slots = phases_w * outputs * (instance.dtype == DataType::kFloat64 ? 12 : 18) + 25 * store_runs;
  const double cta_slots = (700 + store_slots + share_h * filled_w * phases_w * phase_slots) * warps;

  // Resident CTAs hide each other's latencies. An SM issues 4 instructions per cycle.
  const int64_t most =
      resident_blocks(device, plan->shared_bytes + kTableBytes, plan->threads, 65536 / registers_of(instance));
  const int64_t resident = std::max<int64_t>(1, std::min(most, ceil_div(plan->num_blocks, int64_t{device.num_sms})));
  const double efficiency = std::min(0.78, 0.24 + 0.032 * static_cast<double>(resident) * warps);
  const double fp_rate = 128 / multiply_adds_per_cycle(device, instance.dtype == DataType::kFloat64);
  const double blocks_per_sm = static_cast<double>(ceil_div(plan->num_blocks, int64_t{device.num_sms}));
  // 2-byte elements pass through registers in batches that wait for their loads (measured: 1.2 to 3.5 times as long).
  // Kernels with thread_co 2 take 1.4 to 2.2 times as long as estimated on layers of 3 channels in ieee order.
  const bool narrow = forward && float32 && !tap_sums && instance.thread_co == 2;
  const double waits = narrow ? 1.45 : element_bytes(instance.dtype) != 2 ? 1 : forward ? 1.8 : 2.2;
  plan->compute_us = waits * blocks_per_sm * cta_slots * fp_rate / 4 / efficiency / (device.clock_ghz * 1e3);

  if (!forward) {
    // Copies of grad_output arrive at least one stage later: short stages do not hide the latency kLatencyUs.
    constexpr double kLatencyUs = 1.1;
    plan->compute_us = std::max(plan->compute_us, std::ceil(blocks_per_sm / static_cast<double>(resident)) * stages *
                                                      (lists > 1 ? 4 : 1) * kLatencyUs);
  }

  // Stores: a run that does not start and end on 32-byte sectors pays for two partial sectors, which cost about four
  // whole sectors each. W phases written separately pay for every sector.
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const bool channels_last = is_channels_last(problem.y_stride);
  const double group_c_out = static_cast<double>(problem.c_out / problem.groups);
  const double run_bytes =
      channels_last ? std::min<double>(tile.block_co, group_c_out) * bytes
      : tile.phases_w >= problem.w.stride
          ? std::min<double>(int64_t{tile.tile_w} * problem.w.stride, problem.w.out) * tile.fused_w * bytes
          : tile.phases_w * bytes;
  const bool aligned = static_cast<int64_t>(run_bytes) % 32 == 0 &&
                       (channels_last || problem.w.out * static_cast<int64_t>(bytes) % 32 == 0);
  const double sectors = run_bytes / 32 + (aligned ? 0 : 6);
  const double output_bytes = bytes * output_elements(problem);
  const double input_bytes = bytes * input_elements(problem);
  const double halo = static_cast<double>(rows.extent) * columns.extent / tile.tile_h / tile.tile_w;
  const double l2_reads = input_bytes * halo * grid.co_tiles * phases_h * share_h * phases_w * reload;
  plan->memory_us = output_bytes * (sectors * 32 / run_bytes) / (device.copy_gb_per_s * 1e3) +
                    std::max(input_bytes / (device.copy_gb_per_s * 1e3), l2_reads / (device.copy_gb_per_s * 1.3e3));
  const double larger = std::max(plan->compute_us, plan->memory_us);
  const double smaller = std::min(plan->compute_us, plan->memory_us);
  // Minimum time of a call.
  const double least_us = !forward ? 13 : is_exact(problem) ? 8 : 9;
  // Stages of few source channels take longer than estimated. channels_last is worst: each stage reads the sectors of
  // neighbouring channels again.
  const double layout_cost = forward         ? !channels_last                   ? 1
                                               : problem.c_in == problem.groups ? 2.6
                                               : float32                        ? 1 + 1.6 / tile.chunk_ci
                                                                                : 1
                             : channels_last ? 1.1 + 3.4 / tile.chunk_ci
                             : float32       ? 1 + 0.9 / tile.chunk_ci
                                             : 1;
  // In tensor-core classes this engine is chosen only for large problems, which take this much longer than estimated.
  const double beside_tensor_cores = is_exact(problem) ? 1 : 1.5;
  plan->estimate_us = beside_tensor_cores * layout_cost * (larger + smaller / (1 + resident)) + least_us;
}

// Halves the W phases of a tile until everything fits, then the taps of a stage, along H first. Taps are split only for
// single channels, which keeps the order of the sums.
bool fit(const ConvTProblem& problem, int32_t budget, Plan* plan) {
  SimtTile& tile = tile_of<SimtTile>(*plan);
  for (;;) {
    const int32_t bytes = make_shared_layout(problem, tile, nullptr);
    if (bytes <= budget) {
      plan->shared_bytes = bytes;
      return true;
    }
    if (tile.chunk_ci > 1) return false;  // a smaller chunk is a separate candidate
    if (tile.phases_w > 1) {
      tile.phases_w = (tile.phases_w + 1) / 2;
    } else if (tile.chunk_kh > 1) {
      tile.chunk_kh = (tile.chunk_kh + 1) / 2;
    } else if (tile.chunk_kw > 1) {
      tile.chunk_kw = (tile.chunk_kw + 1) / 2;
    } else {
      return false;
    }
  }
}

// Finds the best pipeline depth and chunk of a tile. Returns false if nothing fits.
bool choose_stages(const ConvTProblem& problem, const DeviceInfo& device, Plan* plan) {
  const bool tap_sums = kInstances[tile_of<SimtTile>(*plan).instance].precision == Precision::kAten;
  const int64_t group_c_in = problem.c_in / problem.groups;
  bool found = false;
  int32_t single_bytes[kMaxStages + 1] = {};  // by stages: shared memory of a known plan with one channel
  Plan best{};
  for (const int32_t resident : {1, 2, 3, 4}) {
    const int32_t budget = shared_room(device, resident) - kTableBytes;
    for (const int32_t stages : {2, 3}) {
      for (const int32_t chunk : {1, 2, 4, 6, 8, 12, 16, 24, 32}) {
        if (chunk > 1 && chunk >= 2 * group_c_in) break;
        // With several channels, fit() does not shrink anything: a smaller budget gives no other plan, a third stage no
        // better one.
        if (chunk > 1 && (resident > 1 || stages > 2)) break;
        if (chunk == 1 && single_bytes[stages] > 0 && single_bytes[stages] <= budget) continue;
        Plan trial = *plan;
        SimtTile& tile = tile_of<SimtTile>(trial);
        tile.stages = stages;
        tile.chunk_ci = static_cast<int32_t>(std::min<int64_t>(chunk, group_c_in));
        tile.chunk_kh = tap_sums ? 1 : max_taps(problem.h);
        tile.chunk_kw = tap_sums ? 1 : max_taps(problem.w);
        tile.phases_w = std::min(num_phases(problem.w), kMaxPhasesW);
        if (!fit(problem, budget, &trial)) continue;
        if (chunk == 1) single_bytes[stages] = trial.shared_bytes;
        const TileShape shape{tile.block_co, tile.tile_n, tile.tile_h, tile.tile_w, tile.phases_w};
        trial.num_blocks = num_tiles(make_tile_grid(problem, shape));
        if (trial.num_blocks > INT32_MAX) continue;
        estimate(problem, device, &trial);
        if (!found || trial.estimate_us < best.estimate_us) best = trial;
        found = true;
      }
    }
  }
  if (found) *plan = best;
  return found;
}

void add_tiles(const ConvTProblem& problem, const DeviceInfo& device, int32_t fused_w, int32_t instance_index,
               int32_t block_co, int32_t threads, std::vector<Plan>* plans) {
  const Instance& instance = kInstances[instance_index];
  const int32_t capacity = threads / (block_co / instance.thread_co) * instance.quads;  // quads per tile
  const int32_t positions_h = num_positions(problem.h, 0);
  const int32_t row_quads = ceil_div(num_positions(problem.w, 0), 4);
  std::vector<int32_t> widths;
  for (int32_t width = 1; width < std::min(capacity, row_quads); width *= 2) widths.push_back(width);
  widths.push_back(std::min(capacity, row_quads));
  for (const int32_t width : widths) {
    Plan plan = begin_plan(instance.name, instance.precision, SimtTile{});
    SimtTile& tile = tile_of<SimtTile>(plan);
    tile.instance = instance_index;
    plan.threads = threads;
    tile.block_co = block_co;
    tile.fused_w = fused_w;
    tile.tile_w = 4 * width;
    tile.tile_h = std::min(capacity / width, positions_h);
    // Spread the rows evenly over the minimum number of tiles.
    tile.tile_h = ceil_div(positions_h, ceil_div(positions_h, tile.tile_h));
    const int32_t images = tile.tile_h == positions_h ? capacity / width / tile.tile_h : 1;
    tile.tile_n = static_cast<int32_t>(std::min<int64_t>(std::max(images, 1), std::max<int64_t>(problem.batch, 1)));
    if (choose_stages(problem, device, &plan)) plans->push_back(plan);
  }
}

// Adds every instance and tile for a problem with `fused_w` W phases per channel.
void add_plans(const ConvTProblem& problem, const DeviceInfo& device, int32_t fused_w, std::vector<Plan>* plans) {
  const Precision order = served_order(problem);
  const int64_t group_c_out = problem.c_out / problem.groups;
  for (int32_t index = 0; index < kNumInstances; ++index) {
    const Instance& instance = kInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != order || instance.direction != problem.direction) {
      continue;
    }
    // Kernels with two channels per thread read too much shared memory per multiply-add, so they only run layers with
    // few channels.
    if (instance.thread_co < 8 && group_c_out > kFewChannels * fused_w) continue;
    for (int32_t block_co = instance.thread_co; block_co <= kMaxBlockCo; block_co *= 2) {
      if (block_co > instance.thread_co && block_co / 2 >= group_c_out) break;
      if (block_co % fused_w != 0) continue;
      for (const int32_t threads : {128, 256}) {
        if (block_co / instance.thread_co > threads / kThreadsPerGroup) continue;
        add_tiles(problem, device, fused_w, index, block_co, threads, plans);
      }
    }
  }
}

// Plans of a three-dimensional problem: those of the slice with most products, for all slices.
void add_volume_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.d.kernel > kMostDepthTaps) return;
  const auto products = [](const PlaneSlice& slice) { return static_cast<double>(slice.num_planes) * slice.num_taps; };
  const std::vector<PlaneSlice> slices = plane_slices(problem);
  const auto largest = std::max_element(slices.begin(), slices.end(),
                                        [&](const auto& a, const auto& b) { return products(a) < products(b); });
  if (largest == slices.end()) return;
  const bool tap_sums = served_order(problem) == Precision::kAten;
  PlaneSlice planned = *largest;
  planned.num_taps = std::max(planned.num_taps, 1);  // without any tap, the result is the bias
  const ConvTProblem flat = slice_problem(problem, planned, !tap_sums);
  if (std::max(flat.c_in, flat.c_out) > kMostChannels) return;
  const size_t first = plans->size();
  add_simt_plans(flat, device, plans);
  double longer = static_cast<double>(problem.batch) * (tap_sums ? planned.num_taps : 1), all = 0;
  for (const PlaneSlice& slice : slices) all += products(slice);
  longer *= std::max(1.0, all / products(planned));
  constexpr double kLaunchUs = 2.5;
  for (size_t i = first; i < plans->size(); ++i) {
    Plan& plan = (*plans)[i];
    plan.num_blocks *= problem.batch;
    estimate_in_proportion(longer, &plan);
    plan.estimate_us += kLaunchUs * static_cast<double>(slices.size() - 1);
  }
}

}  // namespace

void add_simt_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction == Direction::kGradWeight) {
    served_order(problem);  // rejects classes that no direction supports
    return;
  }
  if (is_volume(problem)) return add_volume_plans(problem, device, plans);
  if (problem.direction == Direction::kGradInput) return add_plans(adjoint_problem(problem), device, 1, plans);
  add_plans(problem, device, 1, plans);
  if (can_fuse_phases(problem)) add_plans(fuse_phases(problem), device, problem.w.stride, plans);
}

}  // namespace convt
