#include "plan/cost.h"

#include <algorithm>

#include "plan/shared_layout.h"
#include "plan/tile.h"

namespace convt {
namespace {

// (input coordinate, tap) pairs of one axis whose output coordinate exists.
double useful_pairs(const Axis& axis) {
  double pairs = 0;
  for (int64_t k = 0; k < axis.kernel; ++k) {
    // 0 <= i * stride - padding + k * dilation < out
    const int64_t offset = k * axis.dilation - axis.padding;
    const int64_t first = offset >= 0 ? 0 : (-offset + axis.stride - 1) / axis.stride;
    const int64_t room = axis.out - 1 - offset;
    const int64_t last = room < 0 ? -1 : std::min<int64_t>(axis.in - 1, room / axis.stride);
    if (last >= first) pairs += static_cast<double>(last - first + 1);
  }
  return pairs;
}

int32_t registers_of(const Instance& instance) {
  if (instance.dtype == DataType::kFloat64) return 168;
  return instance.thread_co == 2 ? 96 : 128;
}

}  // namespace

double useful_multiply_adds(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_in * (problem.c_out / problem.groups) *
         useful_pairs(problem.h) * useful_pairs(problem.w);
}

double floor_us(const ConvTProblem& problem, const DeviceInfo& device, double rate_tflops) {
  const double elements =
      static_cast<double>(problem.batch) * problem.c_in * problem.h.in * problem.w.in +
      static_cast<double>(problem.c_in) * (problem.c_out / problem.groups) * problem.h.kernel * problem.w.kernel +
      (problem.has_bias ? problem.c_out : 0.0) +
      static_cast<double>(problem.batch) * problem.c_out * problem.h.out * problem.w.out;
  const double memory = elements * element_bytes(problem.dtype) / (device.copy_gb_per_s * 1e3);
  double rate = rate_tflops * 1e6;  // operations per microsecond
  if (rate <= 0) {
    const double lanes = multiply_adds_per_cycle(device, problem.dtype == DataType::kFloat64);
    rate = 2 * lanes * device.num_sms * device.clock_ghz * 1e3;
  }
  return std::max(memory, 2 * useful_multiply_adds(problem) / rate);
}

void estimate(const ConvTProblem& problem, const DeviceInfo& device, Plan* plan) {
  const Instance& instance = kInstances[plan->instance];
  const TileShape shape{plan->block_co, plan->tile_n, plan->tile_h, plan->tile_w, plan->phases_w};
  const TileGrid grid = make_tile_grid(problem, shape);
  const double warps = plan->threads / 32.0;
  const double group_c_in = static_cast<double>(problem.c_in / problem.groups);
  const Phase any_h = make_phase(problem.h, 0), any_w = make_phase(problem.w, 0);
  const bool tap_sums = instance.precision == Precision::kAten;

  // Taps of an average phase; tiles of an H phase without taps only store.
  const double taps_h = static_cast<double>(problem.h.kernel) / problem.h.stride;
  const double taps_w = static_cast<double>(problem.w.kernel) / problem.w.stride;
  const double num_phases_w = std::min(plan->phases_w, num_phases(problem.w));

  // Warp instructions of one CTA, per input channel and W phase.
  const double multiply_adds = taps_h * taps_w * instance.thread_co * 4 * instance.quads;
  const double runs = tap_sums ? taps_h * taps_w : taps_h * std::max(1.0, taps_w / (any_w.shift_step == 1 ? 4 : 1));
  const double weight_reads = taps_h * taps_w * std::max(1.0, instance.thread_co / 4.0);
  const double window_reads = runs * instance.quads * (taps_w > 1 && !tap_sums ? 2 : 1);
  const double multiply_slots = multiply_adds + weight_reads + window_reads + 14 * runs;

  // Loads: elements per thread times the instructions that each costs.
  const double kh = std::min<double>(taps_h, plan->chunk_kh), kw = std::min<double>(taps_w, plan->chunk_kw);
  const double reload = tap_sums ? taps_h * taps_w : 1;  // tap sums bring the input once per tap
  const Window rows = row_window(std::max(1, static_cast<int32_t>(kh + 0.5)), any_h.shift_step, plan->tile_h);
  const Window columns = column_window(std::max(1, static_cast<int32_t>(kw + 0.5)), any_w.shift_step, plan->tile_w);
  const double row_passes = static_cast<double>(ceil_div(columns.extent, 32));
  const double input_slots = plan->tile_n * rows.extent * (30 + 9 * row_passes) / warps * reload;
  const double weight_slots = plan->block_co * (20 + 6 * taps_h * taps_w) / plan->threads;
  const double stage_slots = 150.0 / plan->chunk_ci * reload;
  const double channel_slots = multiply_slots + input_slots + weight_slots + stage_slots;

  const double outputs = static_cast<double>(plan->block_co) * plan->tile_n * plan->tile_h * plan->tile_w;
  const double store_slots = num_phases_w * (outputs / plan->threads * 4 + outputs / 32 / warps * 6) + 400;
  const double phase_share = std::min(1.0, taps_h) * std::min(1.0, taps_w);  // phases that have taps
  const double cta_slots =
      (group_c_in * channel_slots * num_phases_w * (phase_share < 1 ? phase_share : 1) + store_slots) * warps;

  // Resident CTAs hide each other's waits; an SM issues 4 instructions a cycle.
  const int32_t registers = registers_of(instance) * plan->threads;
  const int64_t resident = std::max<int64_t>(
      1, std::min<int64_t>({device.shared_per_sm / (plan->shared_bytes + 1024), 65536 / registers, 2048 / plan->threads,
                            ceil_div(plan->num_blocks, int64_t{device.num_sms})}));
  const double resident_warps = static_cast<double>(resident) * warps;
  const double efficiency = std::min(0.92, 0.36 + 0.035 * resident_warps);
  const double fp_rate = 128 / multiply_adds_per_cycle(device, instance.dtype == DataType::kFloat64);
  const double blocks_per_sm = static_cast<double>(ceil_div(plan->num_blocks, int64_t{device.num_sms}));
  plan->compute_us = blocks_per_sm * cta_slots * fp_rate / 4 / efficiency / (device.clock_ghz * 1e3);

  // Stores: a run that does not begin and end on 32-byte sectors pays for two partial ones, which cost
  // about four whole ones each. W phases written apart pay for every sector.
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const bool channels_last = problem.y_stride[1] == 1 && problem.y_stride[3] != 1;
  const double group_c_out = static_cast<double>(problem.c_out / problem.groups);
  const double run_bytes = channels_last ? std::min<double>(plan->block_co, group_c_out) * bytes
                           : plan->phases_w >= problem.w.stride
                               ? std::min<double>(int64_t{plan->tile_w} * problem.w.stride, problem.w.out) * bytes
                               : plan->phases_w * bytes;
  const bool aligned = static_cast<int64_t>(run_bytes) % 32 == 0 &&
                       (channels_last || problem.w.out * static_cast<int64_t>(bytes) % 32 == 0);
  const double sectors = run_bytes / 32 + (aligned ? 0 : 6);
  const double output_bytes =
      static_cast<double>(problem.batch) * problem.c_out * problem.h.out * problem.w.out * bytes;
  const double input_bytes = static_cast<double>(problem.batch) * problem.c_in * problem.h.in * problem.w.in * bytes;
  const double halo = static_cast<double>(rows.extent) * columns.extent / plan->tile_h / plan->tile_w;
  const double l2_reads = input_bytes * halo * grid.co_tiles * grid.h_phases * grid.w_phases * reload;
  plan->memory_us = output_bytes * (sectors * 32 / run_bytes) / (device.copy_gb_per_s * 1e3) +
                    std::max(input_bytes / (device.copy_gb_per_s * 1e3), l2_reads / (device.copy_gb_per_s * 1.3e3));
  const double larger = std::max(plan->compute_us, plan->memory_us);
  const double smaller = std::min(plan->compute_us, plan->memory_us);
  plan->estimate_us = larger + smaller / (1 + resident) + 3;
}

}  // namespace convt
