#include "plan/wgmma.h"

#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/engines.h"
#include "plan/tile.h"
#include "plan/wgmma_instances.h"

namespace convt {
namespace {

constexpr int32_t kPassChannels = 8;
constexpr int32_t kBlocksPerSm = 2;
constexpr int32_t kWgmmaThreads = 256;
constexpr int64_t kMostWorkspaceBytes = int64_t{256} << 20;
constexpr int32_t kBlock = 64;  // positions

bool split_operands(const ConvTProblem& problem) { return problem.precision == Precision::kTf32x3; }

int32_t channels_of_plane(const ConvTProblem& problem) { return problem.dtype == DataType::kFloat32 ? 4 : 8; }

// Whole vectors; pairs at least in half precision, which is converted two columns at a time.
int32_t window_columns(const ConvTProblem& problem, const TapProgram& program, int32_t tile_w) {
  const int32_t step = std::max(source_vector(problem), problem.dtype == DataType::kFloat32 ? 1 : 2);
  return ceil_div(tile_w + program.extra_w, step) * step;
}

int32_t blocks_per_row(const WgmmaPlan& plan) {
  return plan.shape == BlockShape::kLines ? plan.tile_w / kBlock : plan.tile_w / 8;
}

// Everything that follows from the tile, or false where it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program, const GemmShape& gemm,
             WgmmaPlan* plan, int32_t* shared_bytes) {
  const int32_t sub_tiles = program.sub_h * program.sub_w;
  plan->rows = plan->tile_h + program.extra_h;
  plan->columns = window_columns(problem, program, plan->tile_w);
  plan->pitch = plan->columns;
  const int64_t positions = int64_t{sub_tiles} * plan->tile_n * plan->rows * plan->pitch;
  if (positions > 8192) return false;
  // Eight neighbouring lanes that store four planes of two positions meet at no bank.
  plan->plane_positions = static_cast<int32_t>(ceil_div(positions - 2, int64_t{8})) * 8 + 2;

  const int32_t parts = split_operands(problem) ? 2 : 1;
  int32_t longest_run = 1;
  for (int32_t run = 0; run < program.num_runs; ++run) {
    longest_run = std::max(longest_run, program.runs[run].num_h * program.runs[run].num_w);
  }
  plan->staged_stride = plan->blocks * kBlock * plan->split_phases + 4;
  const int32_t staged_bytes = kPassChannels * plan->staged_stride * 4;
  const int32_t step_channels = 2 * channels_of_plane(problem);
  const int32_t limit = device.shared_per_sm / kBlocksPerSm - 1024 - 64;  // 1 KiB of each CTA is the system's
  const int32_t all_steps = ceil_div(gemm.k_channels, step_channels);
  for (const int32_t k_steps : {4, 2, 1}) {
    if (k_steps > 1 && k_steps > all_steps) continue;
    plan->k_steps = k_steps;
    plan->num_chunks = ceil_div(gemm.k_channels, step_channels * k_steps);
    plan->tap_bytes = parts * k_steps * 2 * plan->block_n * 16;
    // Runs between two additions in float32 stay short (tf32x3).
    const int32_t most_taps = parts == 2 ? std::max(1, 4 / k_steps) : 12;
    plan->slot_taps = std::clamp(8192 / plan->tap_bytes, 1, std::min(longest_run, most_taps));
    plan->weight_slots = 3;
    const int32_t stage_bytes = parts * 2 * k_steps * plan->plane_positions * 16;
    plan->raw_channel_bytes =
        ceil_div(plan->plane_positions * static_cast<int32_t>(element_bytes(problem.dtype)), 16) * 16;
    plan->raw_bytes = k_steps * step_channels * plan->raw_channel_bytes;
    const int32_t weights_bytes = plan->weight_slots * plan->slot_taps * plan->tap_bytes;
    for (int32_t slots = 4; slots >= 2; --slots) {
      const int64_t source_bytes = ceil_div(int64_t{slots} * stage_bytes, int64_t{128}) * 128;
      const int64_t raw_bytes = ceil_div(int64_t{kRawSlots} * plan->raw_bytes, int64_t{128}) * 128;
      const int64_t barriers_bytes = 16 * (slots + plan->weight_slots);
      const int64_t total = source_bytes + raw_bytes + weights_bytes + staged_bytes + barriers_bytes + 16;
      if (total > limit) continue;
      plan->source_slots = slots;
      plan->raw_begin = static_cast<int32_t>(source_bytes);
      plan->weights_begin = plan->raw_begin + static_cast<int32_t>(raw_bytes);
      plan->staged_begin = plan->weights_begin + weights_bytes;
      plan->barriers_begin = plan->staged_begin + ceil_div(staged_bytes, 16) * 16;
      *shared_bytes = plan->barriers_begin + static_cast<int32_t>(barriers_bytes);
      // What a block reads beyond its plane must still be this CTA's memory.
      const int32_t beyond = (plan->blocks * kBlock + plan->rows * plan->pitch - plan->plane_positions) * 16;
      if (*shared_bytes - plan->raw_begin < beyond) continue;
      return true;
    }
  }
  return false;
}

// Whether 32 bits hold every offset within a tile's results.
bool offsets_fit(const ConvTProblem& problem, const GemmShape& gemm, const WgmmaPlan& plan) {
  const int64_t* stride = problem.direction == Direction::kForward ? problem.y_stride : problem.x_stride;
  const double last = static_cast<double>(plan.tile_n) * stride[0] +
                      static_cast<double>(plan.tile_h) * gemm.result_step_h * stride[2] +
                      static_cast<double>(plan.tile_w + 1) * gemm.result_step_w * stride[3];
  return last < 2e9;
}

// Bytes that a row of results costs, by its own bytes: 32-byte sectors written in part cost about four whole ones.
double stored_bytes(double run_bytes, bool aligned) {
  return aligned ? std::ceil(run_bytes / 32) * 32 : run_bytes + 6 * 32;
}

// Times in microseconds. A CTA loads, multiplies and stores at the same time for different tiles or stages, and the
// CTAs of an SM fill each other's gaps; docs/performance.md says where the rates come from.
void estimate_wgmma(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program,
                    const GemmShape& gemm, Plan* whole) {
  const WgmmaPlan* plan = &whole->wgmma;
  const bool forward = problem.direction == Direction::kForward;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const bool split = split_operands(problem);
  const WgmmaGrid grid = make_wgmma_grid(problem, program, *plan);
  const double ctas = kBlocksPerSm * device.num_sms;
  const double tiles_per_cta = std::ceil(static_cast<double>(plan->num_tiles) / ctas);
  const double sharing = plan->num_tiles > device.num_sms ? kBlocksPerSm : 1;  // CTAs at work on an SM
  const double cycle_us = 1e-3 / device.clock_ghz;
  const double sm_bytes_per_us = device.copy_gb_per_s * 1e3 / device.num_sms;

  // A product of 64 x 64 with one step of K takes 34 cycles, one of 64 x 32 takes 25: its operands come too slowly.
  const double product_cycles = plan->block_n == 64 ? 34 : 25;
  const double taps = static_cast<double>(program.total_taps) / program.phases_h / grid.w_splits;  // of a tile
  const double products = taps * plan->num_chunks * plan->k_steps * plan->blocks * (split ? 3 : 1);
  const double slots = taps / plan->slot_taps * plan->num_chunks + plan->num_chunks;
  const double multiply = (products * product_cycles + slots * 100) * cycle_us;

  const double lines = static_cast<double>(program.sub_h) * program.sub_w * plan->tile_n * plan->rows;
  const double source_bytes = lines * plan->columns * gemm.k_channels * bytes;
  const double weight_bytes = taps * plan->num_chunks * plan->tap_bytes;
  const double load = (source_bytes + weight_bytes) / (1.2 * sm_bytes_per_us) + plan->num_chunks * 0.12;
  // Three warps copy: small copies take longer to issue than to arrive.
  const int64_t* from = forward ? problem.x_stride : problem.y_stride;
  const bool channels = from[1] == 1 && gemm.k_channels * static_cast<int64_t>(bytes) % 16 == 0;
  const double unit_bytes = channels ? 16 : std::max(source_vector(problem) * bytes, bytes);
  const double find_cycles = program.sub_h * program.sub_w > 1 ? 700 : 300;  // a unit's place in the source
  const double copy_cycles = channels ? find_cycles : unit_bytes == 16 ? 60 : unit_bytes == 4 ? 130 : 270;
  const double issue = source_bytes / unit_bytes / 96 * copy_cycles * cycle_us;

  const int64_t* stride = forward ? problem.y_stride : problem.x_stride;
  const bool channels_last = stride[1] == 1 && stride[3] != 1;
  const double existing_n = std::min<double>(plan->block_n, gemm.n_channels);
  const double positions = static_cast<double>(plan->tile_n) * plan->tile_h * plan->tile_w;
  const bool all_phases = plan->split_phases == gemm.result_step_w;
  const double run = channels_last ? existing_n * bytes
                     : all_phases  ? std::min<double>(plan->tile_w * plan->split_phases, gemm.result_w) * bytes
                                   : bytes;
  const bool aligned = channels_last ? static_cast<int64_t>(run) % 32 == 0
                                     : all_phases && gemm.result_w * static_cast<int64_t>(bytes) % 32 == 0 &&
                                           static_cast<int64_t>(run) % 32 == 0;
  const double runs = positions * plan->split_phases * existing_n * bytes / run;
  const double store = runs * stored_bytes(run, aligned) / sm_bytes_per_us + 1.0;

  const double multiply_us = tiles_per_cta * sharing * multiply, load_us = tiles_per_cta * sharing * load,
               store_us = tiles_per_cta * sharing * store;
  const double chain = tiles_per_cta * (std::max({multiply, load, issue}) + store);
  const double batch = static_cast<double>(problem.batch);
  const double moved = batch * bytes *
                       (static_cast<double>(problem.c_in) * problem.h.in * problem.w.in +
                        static_cast<double>(problem.c_out) * problem.h.out * problem.w.out);
  whole->memory_us = moved / (device.copy_gb_per_s * 1e3);
  const double pack = 3 + 2 * static_cast<double>(whole->workspace_bytes) / (0.4 * device.copy_gb_per_s * 1e3);
  const double busiest = std::max({1.1 * multiply_us, load_us, store_us, 1.2 * whole->memory_us, chain});
  whole->compute_us = busiest;
  // What the two CTAs of an SM do not overlap.
  const double rest = std::max(0.0, multiply_us + load_us + store_us - busiest);
  whole->estimate_us = 1.2 * (busiest + 0.25 * rest) + 5 + pack;
}

}  // namespace

GemmShape make_gemm_shape(const ConvTProblem& problem) {
  const auto c_in = static_cast<int32_t>(problem.c_in / problem.groups);
  const auto c_out = static_cast<int32_t>(problem.c_out / problem.groups);
  const Axis &h = problem.h, &w = problem.w;
  if (problem.direction == Direction::kForward) {
    return GemmShape{c_in,     c_out,   num_positions(h, 0), num_positions(w, 0), h.in, w.in, h.out, w.out,
                     h.stride, w.stride};
  }
  return GemmShape{c_out, c_in, h.in, w.in, h.out, w.out, h.in, w.in, 1, 1};
}

int32_t block_row_step(const WgmmaPlan& plan) { return plan.shape == BlockShape::kSquares ? plan.pitch : 8; }

int32_t block_origin(const WgmmaPlan& plan, int32_t block) {
  if (plan.shape == BlockShape::kFlat) return block * kBlock;
  const int32_t per_row = blocks_per_row(plan);
  return plan.shape == BlockShape::kLines ? block / per_row * plan.pitch + block % per_row * kBlock
                                          : block / per_row * 8 * plan.pitch + block % per_row * 8;
}

WgmmaGrid make_wgmma_grid(const ConvTProblem& problem, const TapProgram& program, const WgmmaPlan& plan) {
  const GemmShape gemm = make_gemm_shape(problem);
  WgmmaGrid grid;
  grid.channel_tiles = ceil_div(gemm.n_channels, plan.block_n);
  grid.w_tiles = ceil_div(gemm.positions_w, plan.tile_w);
  grid.w_splits = ceil_div(program.phases_w, plan.split_phases);
  grid.h_tiles = ceil_div(gemm.positions_h, plan.tile_h);
  grid.batch_tiles = static_cast<int32_t>(ceil_div(problem.batch, int64_t{plan.tile_n}));
  return grid;
}

void add_wgmma_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  const bool half = problem.dtype == DataType::kFloat16 || problem.dtype == DataType::kBFloat16;
  const bool tensor_class = half ? problem.precision == Precision::kHalf
                                 : problem.dtype == DataType::kFloat32 && (problem.precision == Precision::kTf32 ||
                                                                           problem.precision == Precision::kTf32x3);
  if (device.compute_capability != 90 || !tensor_class || problem.direction == Direction::kGradWeight) return;
  TapProgram program;
  if (!make_tap_program(problem, &program)) return;
  const GemmShape gemm = make_gemm_shape(problem);
  const int32_t parts = split_operands(problem) ? 2 : 1;

  auto add = [&](const WgmmaPlan& tile) {
    Plan plan{};
    plan.wgmma = tile;
    if (!lay_out(problem, device, program, gemm, &plan.wgmma, &plan.shared_bytes)) return;
    const WgmmaGrid grid = make_wgmma_grid(problem, program, tile);
    plan.wgmma.num_tiles = int64_t{grid.channel_tiles} * grid.w_tiles * grid.w_splits * program.phases_h *
                           grid.h_tiles * problem.groups * grid.batch_tiles;
    const int64_t packed_taps =
        problem.groups * grid.channel_tiles * int64_t{plan.wgmma.num_chunks} * program.total_taps;
    plan.workspace_bytes = std::max<int64_t>(packed_taps * plan.wgmma.tap_bytes, 16);
    if (plan.wgmma.num_tiles > INT32_MAX || packed_taps > INT32_MAX || plan.workspace_bytes > kMostWorkspaceBytes ||
        !offsets_fit(problem, gemm, plan.wgmma)) {
      return;
    }
    plan.engine = Engine::kWgmma;
    plan.kernel = kWgmmaInstances[tile.instance].name;
    plan.served_precision = problem.precision;
    plan.threads = kWgmmaThreads;
    plan.num_blocks = std::min<int64_t>(plan.wgmma.num_tiles, int64_t{kBlocksPerSm} * device.num_sms);
    estimate_wgmma(problem, device, program, gemm, &plan);
    plans->push_back(plan);
  };
  for (int32_t index = 0; index < kNumWgmmaInstances; ++index) {
    const WgmmaInstance& instance = kWgmmaInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    if (instance.block_n == 64 && gemm.n_channels <= 32) continue;
    if (instance.block_n == 32 && gemm.n_channels > 96) continue;
    const int32_t sums = 256 / instance.block_n / parts;
    WgmmaPlan tile{};
    tile.instance = index;
    tile.block_n = instance.block_n;
    tile.split_phases = std::min(program.phases_w >= 3 ? 4 : program.phases_w, sums);
    // Half of the accumulators where the whole does not fit or leaves SMs idle.
    const int32_t most_blocks = sums / tile.split_phases;
    for (tile.blocks = most_blocks; tile.blocks >= std::max(1, most_blocks / 2); tile.blocks /= 2) {
      tile.tile_n = 1;
      tile.shape = BlockShape::kLines;
      for (int32_t per_row = 1; per_row <= tile.blocks; per_row *= 2) {
        tile.tile_w = per_row * kBlock;
        tile.tile_h = tile.blocks / per_row;
        if (per_row > 1 && tile.tile_w >= 2 * gemm.positions_w) break;
        add(tile);
      }
      tile.shape = BlockShape::kSquares;
      for (int32_t per_row = 1; per_row <= tile.blocks; per_row *= 2) {
        tile.tile_w = per_row * 8;
        tile.tile_h = tile.blocks / per_row * 8;
        add(tile);
      }
      tile.shape = BlockShape::kFlat;
      tile.tile_w = gemm.positions_w;
      const int32_t pitch = window_columns(problem, program, tile.tile_w);
      const int32_t capacity = tile.blocks * kBlock;
      if (tile.tile_w > capacity) continue;
      // The last row's halo need not be covered.
      tile.tile_h = std::min((capacity - tile.tile_w) / pitch + 1, gemm.positions_h);
      tile.tile_h = ceil_div(gemm.positions_h, ceil_div(gemm.positions_h, tile.tile_h));
      if (tile.tile_h == gemm.positions_h) {
        const int32_t image = (tile.tile_h + program.extra_h) * pitch;
        const int32_t last = (tile.tile_h - 1) * pitch + tile.tile_w;
        tile.tile_n = static_cast<int32_t>(std::min<int64_t>(problem.batch, (capacity - last) / image + 1));
      }
      add(tile);
    }
  }
}

}  // namespace convt
