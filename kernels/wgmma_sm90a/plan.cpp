#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "wgmma_sm90a/instances.h"
#include "wgmma_sm90a/layout.h"

namespace convt {
namespace {

constexpr int64_t kMostWorkspaceBytes = int64_t{256} << 20;
constexpr int32_t kBlock = 64;  // positions

int32_t channels_of_plane(const ConvTProblem& problem) { return problem.dtype == DataType::kFloat32 ? 4 : 8; }

int32_t window_pitch(const ConvTProblem& problem, const TapProgram& program, int32_t tile_w) {
  const int32_t step = source_vector(problem);
  return ceil_div(tile_w + program.extra_w, step) * step;
}

int32_t blocks_per_row(const WgmmaTile& plan) {
  return plan.shape == BlockShape::kLines ? plan.tile_w / kBlock : plan.tile_w / 8;
}

// Everything that follows from the tile, or false where it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program, const GemmShape& gemm,
             WgmmaTile* plan, int32_t* shared_bytes) {
  const int32_t sub_tiles = program.sub_h * program.sub_w;
  plan->rows = plan->tile_h + program.extra_h;
  plan->pitch = window_pitch(problem, program, plan->tile_w);
  constexpr int64_t kMostPositions = 8192;  // of a plane, and of the columns that a row of it reads
  if (plan->rows > kMostPositions || plan->pitch > kMostPositions) return false;
  const int64_t positions = int64_t{sub_tiles} * plan->tile_n * plan->rows * plan->pitch;
  if (positions > kMostPositions) return false;
  // Eight neighbouring lanes that store four planes of two positions meet at no bank.
  plan->plane_positions = static_cast<int32_t>(ceil_div(positions - 2, int64_t{8})) * 8 + 2;
  plan->by_channels = is_channels_last(source_stride(problem));
  const auto bytes = static_cast<int32_t>(element_bytes(problem.dtype));
  if (!plan->by_channels) {
    const int64_t columns = source_columns(program, plan->pitch).count;
    if (columns > kMostPositions) return false;
    plan->raw_lines = program.sub_h * plan->tile_n * plan->rows;
    const int64_t vector = 16 / bytes;
    // Rows that begin anywhere in a vector need one vector more.
    const int64_t most_before = rows_begin_on_vectors(problem) ? 0 : vector - 1;
    plan->raw_pitch = static_cast<int32_t>(ceil_div(columns + most_before, vector) * vector);
    if (int64_t{plan->raw_lines} * plan->raw_pitch > 16384) return false;
    plan->raw_channel_bytes = plan->raw_lines * plan->raw_pitch * bytes;
  }
  const int32_t lists_bytes = ceil_div(static_cast<int32_t>(positions) + plan->raw_lines, 4) * 16;

  const int32_t terms = split_operands(problem) ? 2 : 1;
  int32_t longest_run = 1;
  for (int32_t run = 0; run < program.num_runs; ++run) {
    longest_run = std::max(longest_run, program.runs[run].num_h * program.runs[run].num_w);
  }
  plan->staged_stride = plan->blocks * kBlock * plan->split_phases + 4;
  const bool staged = !is_channels_last(result_stride(problem));
  const int32_t staged_bytes = staged ? ceil_div(kWgmmaPassChannels * plan->staged_stride, 4) * 16 : 0;
  const int32_t step_channels = 2 * channels_of_plane(problem);
  const int32_t limit = device.shared_per_sm / kWgmmaBlocksPerSm - 1024 - 64;  // 1 KiB of each CTA is the system's
  const int32_t all_steps = ceil_div(gemm.k_channels, step_channels);
  const int32_t most_slots = plan->by_channels ? 6 : 4, fewest_slots = plan->by_channels ? kDirectAhead + 1 : 2;
  // Shallower pipelines where the whole does not fit.
  for (const int32_t raw_slots : {kRawSlots, kRawSlots - 1}) {
    for (const int32_t k_steps : {4, 2, 1}) {
      if (k_steps > 1 && k_steps > all_steps) continue;
      plan->k_steps = k_steps;
      plan->num_chunks = ceil_div(gemm.k_channels, step_channels * k_steps);
      plan->tap_bytes = terms * k_steps * 2 * plan->block_n * 16;
      // Runs between two additions in float32 stay short (tf32x3).
      const int32_t most_taps = terms == 2 ? std::max(1, 4 / k_steps) : 12;
      plan->slot_taps =
          std::clamp((raw_slots == kRawSlots ? 8192 : 4096) / plan->tap_bytes, 1, std::min(longest_run, most_taps));
      plan->weight_slots = 3;
      const int32_t stage_bytes = terms * 2 * k_steps * plan->plane_positions * 16;
      plan->raw_bytes = k_steps * step_channels * plan->raw_channel_bytes;
      const int32_t weights_bytes = plan->weight_slots * plan->slot_taps * plan->tap_bytes;
      for (int32_t slots = most_slots; slots >= fewest_slots; --slots) {
        const int64_t source_bytes = ceil_div(int64_t{slots} * stage_bytes, int64_t{128}) * 128;
        const int64_t raw_bytes = ceil_div(int64_t{raw_slots} * plan->raw_bytes, int64_t{128}) * 128;
        const int64_t barriers_bytes = 16 * (slots + plan->weight_slots);
        const int64_t total = source_bytes + raw_bytes + weights_bytes + staged_bytes + lists_bytes + barriers_bytes;
        if (total > limit) continue;
        plan->source_slots = slots;
        plan->raw_slots = raw_slots;
        plan->raw_begin = static_cast<int32_t>(source_bytes);
        plan->weights_begin = plan->raw_begin + static_cast<int32_t>(raw_bytes);
        plan->staged_begin = plan->weights_begin + weights_bytes;
        plan->lists_begin = plan->staged_begin + staged_bytes;
        plan->barriers_begin = plan->lists_begin + lists_bytes;
        *shared_bytes = plan->barriers_begin + static_cast<int32_t>(barriers_bytes);
        // What the last block reads behind the last plane, at the last tap, must still be this CTA's memory.
        const int32_t last = block_origin(*plan, plan->blocks - 1) + 7 * block_row_step(*plan) + 7 +
                             (sub_tiles - 1) * plan->tile_n * plan->rows * plan->pitch + program.extra_h * plan->pitch +
                             program.extra_w;
        const int32_t beyond = (last + 1 - plan->plane_positions) * 16;
        *shared_bytes = std::max(*shared_bytes, slots * stage_bytes + beyond);
        if (*shared_bytes > limit) continue;
        return true;
      }
    }
  }
  return false;
}

// Whether 32 bits hold every offset within a tile's results, and from its corner in the source.
bool offsets_fit(const ConvTProblem& problem, const GemmShape& gemm, const TapProgram& program, const WgmmaTile& plan) {
  const int64_t* to = result_stride(problem);
  const double last = static_cast<double>(plan.tile_n) * to[0] +
                      static_cast<double>(plan.tile_h) * gemm.result_step_h * to[2] +
                      static_cast<double>(plan.tile_w + 1) * gemm.result_step_w * to[3];
  const int64_t* from = source_stride(problem);
  double rows = 0;
  for (int32_t i = 0; i < std::max(program.sub_h, program.phases_h); ++i) {
    rows = std::max(rows, std::abs(static_cast<double>(program.window_h[i].shift)) + plan.rows + 1);
  }
  const SourceColumns columns = source_columns(program, plan.pitch);
  const double source_last = static_cast<double>(plan.tile_n) * from[0] + rows * program.source_step_h * from[2] +
                             (std::abs(static_cast<double>(columns.first)) + columns.count) * from[3];
  return last < 2e9 && source_last < 2e9;
}

// What stores of a tile's results cost: instructions of a thread, and sectors that are written in part.
struct StoreWork {
  double stores, partial_sectors;
};

StoreWork store_work(const ConvTProblem& problem, const TapProgram& program, const GemmShape& gemm,
                     const WgmmaTile& plan) {
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double existing_n = std::min<double>(plan.block_n, gemm.n_channels);
  const double passes = std::ceil(existing_n / kWgmmaPassChannels);
  const double positions = static_cast<double>(plan.tile_n) * plan.tile_h * plan.tile_w;
  if (is_channels_last(result_stride(problem))) {
    const bool whole = static_cast<int64_t>(existing_n * bytes) % 32 == 0;
    const double runs = positions * std::min(plan.split_phases, program.phases_w);
    return {passes * plan.blocks * 2 * plan.split_phases, whole ? 0 : 2 * runs};
  }
  const bool all_phases = plan.split_phases >= program.phases_w;
  const double row = std::min<double>(plan.tile_w * gemm.result_step_w, gemm.result_w) * bytes;
  const bool whole =
      static_cast<int64_t>(row) % 32 == 0 && gemm.result_w * static_cast<int64_t>(bytes) % 32 == 0 && all_phases;
  const double rows = positions / plan.tile_w * existing_n;
  // A tile that owns some of the W phases writes every sector of its rows in part.
  const double partial = whole ? 0 : all_phases ? 2 * rows : std::ceil(row / 32) * rows;
  const bool pairs =
      gemm.result_w % 2 == 0 && gemm.result_step_w == plan.split_phases && plan.tile_w * plan.split_phases % 2 == 0;
  return {passes * kWgmmaPassChannels * std::ceil(plan.blocks * plan.split_phases / (pairs ? 4.0 : 2.0)), partial};
}

// Times in microseconds. What a tile costs is a sum over its work, fitted to 560 measured plans of 21 layers: the CTAs
// of an SM fill each other's gaps only as far as the rates below already say. docs/engines/wgmma.md has the fit.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program, const GemmShape& gemm,
              Plan* whole) {
  const WgmmaTile& plan = tile_of<WgmmaTile>(*whole);
  const WgmmaGrid grid = make_wgmma_grid(problem, program, plan);
  const double tiles_per_cta = std::ceil(static_cast<double>(plan.num_tiles) / (kWgmmaBlocksPerSm * device.num_sms));

  const double taps = static_cast<double>(program.total_taps) / program.phases_h / grid.w_splits;  // of a tile
  const double products = taps * plan.num_chunks * plan.k_steps * plan.blocks * (split_operands(problem) ? 3 : 1);
  const double weight_slots = std::max(1.0, taps / plan.slot_taps) * plan.num_chunks;
  const bool vectors = rows_begin_on_vectors(problem) || source_has_no_gaps(problem);
  const LoaderWork copy = copy_work(problem, plan, program, vectors), convert = convert_work(problem, plan, program);
  const StoreWork store = store_work(problem, program, gemm, plan);
  const bool split_channels_last = split_operands(problem) && is_channels_last(result_stride(problem));
  const double product = plan.block_n == 64 ? 51 : split_channels_last ? 30 : 25.5;
  const double half_sectors = problem.dtype != DataType::kFloat32 && is_channels_last(result_stride(problem)) ? 60 : 0;
  const double cycles = products * product + weight_slots * 230 +
                        plan.num_chunks * (345 + copy.cycles() + convert.cycles()) +
                        store.stores * ((is_channels_last(result_stride(problem)) ? 150 : 110) + half_sectors) +
                        store.partial_sectors * 3.5 + 2500;
  whole->compute_us = tiles_per_cta * cycles * 1e-3 / device.clock_ghz;

  const double moved = static_cast<double>(problem.batch * element_bytes(problem.dtype)) *
                       (static_cast<double>(problem.c_in) * problem.h.in * problem.w.in +
                        static_cast<double>(problem.c_out) * problem.h.out * problem.w.out);
  whole->memory_us = moved / (device.copy_gb_per_s * 1e3);
  const double pack = 3 + 2 * static_cast<double>(whole->workspace_bytes) / (0.4 * device.copy_gb_per_s * 1e3);
  const bool half = problem.dtype != DataType::kFloat32;
  // Halves in NCHW took longer than in the fit where layers were new to it (docs/choosing.md).
  const double margin = half_sectors > 0 ? 1.17 : half ? 1.32 : 1.1;
  whole->estimate_us = margin * std::max(whole->compute_us, 1.2 * whole->memory_us) + 9 + pack;
}

}  // namespace

SourceColumns source_columns(const TapProgram& program, int32_t pitch) {
  int32_t first = INT32_MAX, last = INT32_MIN;
  for (int32_t i = 0; i < program.sub_w; ++i) {
    const int32_t begin = program.window_w[i].shift * program.source_step_w + program.window_w[i].residue;
    first = std::min(first, begin);
    last = std::max(last, begin);
  }
  const int64_t count = int64_t{last} - first + (pitch - int64_t{1}) * program.source_step_w + 1;
  return SourceColumns{first, static_cast<int32_t>(std::min<int64_t>(count, INT32_MAX))};
}

bool rows_begin_on_vectors(const ConvTProblem& problem) {
  return source_vector(problem) * element_bytes(problem.dtype) == 16;
}

bool source_has_no_gaps(const ConvTProblem& problem) {
  const bool forward = problem.direction == Direction::kForward;
  const int64_t* stride = source_stride(problem);
  const int64_t channels = forward ? problem.c_in : problem.c_out;
  const int64_t rows = forward ? problem.h.in : problem.h.out, columns = forward ? problem.w.in : problem.w.out;
  return stride[3] == 1 && stride[2] == columns && stride[1] == rows * columns &&
         (problem.batch == 1 || stride[0] == channels * rows * columns);
}

int32_t block_row_step(const WgmmaTile& plan) { return plan.shape == BlockShape::kSquares ? plan.pitch : 8; }

int32_t block_origin(const WgmmaTile& plan, int32_t block) {
  if (plan.shape == BlockShape::kFlat) return block * kBlock;
  const int32_t per_row = blocks_per_row(plan);
  return plan.shape == BlockShape::kLines ? block / per_row * plan.pitch + block % per_row * kBlock
                                          : block / per_row * 8 * plan.pitch + block % per_row * 8;
}

WgmmaGrid make_wgmma_grid(const ConvTProblem& problem, const TapProgram& program, const WgmmaTile& plan) {
  const GemmShape gemm = make_gemm_shape(problem);
  WgmmaGrid grid;
  grid.channel_tiles = ceil_div(gemm.n_channels, plan.block_n);
  grid.w_tiles = ceil_div(gemm.positions_w, plan.tile_w);
  grid.w_splits = ceil_div(program.phases_w, plan.split_phases);
  grid.h_tiles = ceil_div(gemm.positions_h, plan.tile_h);
  grid.batch_tiles = static_cast<int32_t>(ceil_div(problem.batch, int64_t{plan.tile_n}));
  return grid;
}

double LoaderWork::cycles(int32_t shares) const {
  return ceil_div(units * shares, kWgmmaLoaders) * (unit_cycles + work_cycles * work / shares);
}

int32_t LoaderWork::shares() const {
  int32_t best = 1;
  for (int32_t shares = 2; work % (shares * least_work) == 0; shares *= 2) {
    if (cycles(shares) < cycles(best)) best = shares;
  }
  return best;
}

LoaderWork copy_work(const ConvTProblem& problem, const WgmmaTile& plan, const TapProgram& program, bool vectors) {
  const auto vector = static_cast<int32_t>(16 / element_bytes(problem.dtype));
  const int32_t planes = 2 * plan.k_steps,
                positions = program.sub_h * program.sub_w * plan.tile_n * plan.rows * plan.pitch;
  const bool whole_vectors = make_gemm_shape(problem).k_channels % vector == 0;
  if (plan.by_channels) return LoaderWork{positions, planes, 1, 0, whole_vectors ? 123.0 : 500.0};
  const int32_t units = plan.raw_lines * plan.raw_pitch / (vectors ? vector : 1);
  const double cycles = !vectors ? (vector == 4 ? 130 : 270) : rows_begin_on_vectors(problem) ? 30 : 110;
  return LoaderWork{units, planes * vector, 4, 60, cycles};
}

LoaderWork convert_work(const ConvTProblem& problem, const WgmmaTile& plan, const TapProgram& program) {
  const int32_t positions = program.sub_h * program.sub_w * plan.tile_n * plan.rows * plan.pitch;
  const int32_t planes = 2 * plan.k_steps, terms = split_operands(problem) ? 2 : 1;
  const bool half = problem.dtype != DataType::kFloat32;
  if (plan.by_channels) return LoaderWork{positions, planes, 1, 0, half ? 0.0 : 69.0 * terms};
  const bool gathers = !rows_begin_on_vectors(problem);
  if (half && source_vector(problem) > 1) return LoaderWork{positions / 2, planes, 1, 80, gathers ? 240.0 : 250.0};
  return LoaderWork{positions, planes, half ? 1 : 2, 80, half ? 190.0 : (gathers ? 160.0 : 115.0) * terms};
}

void add_wgmma_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (problem.direction == Direction::kGradWeight) return;
  TapProgram program;
  if (!make_tap_program(problem, &program)) return;
  const GemmShape gemm = make_gemm_shape(problem);
  const int32_t terms = split_operands(problem) ? 2 : 1;

  auto add = [&](const WgmmaTile& tile) {
    Plan plan = begin_plan(kWgmmaInstances[tile.instance].name, problem.precision, tile);
    WgmmaTile& laid_out = tile_of<WgmmaTile>(plan);
    if (!lay_out(problem, device, program, gemm, &laid_out, &plan.shared_bytes)) return;
    const WgmmaGrid grid = make_wgmma_grid(problem, program, tile);
    const int64_t num_tiles = int64_t{grid.channel_tiles} * grid.w_tiles * grid.w_splits * program.phases_h *
                              grid.h_tiles * problem.groups * grid.batch_tiles;
    const int64_t packed_taps = problem.groups * grid.channel_tiles * int64_t{laid_out.num_chunks} * program.total_taps;
    // CTAs step from tile to tile in 32 bits, beyond the last one too.
    constexpr int64_t kLimit = int64_t{1} << 30;
    if (num_tiles > kLimit || packed_taps > kLimit) return;
    laid_out.num_tiles = static_cast<int32_t>(num_tiles);
    plan.workspace_bytes = plan.packed_bytes = std::max<int64_t>(packed_taps * laid_out.tap_bytes, 16);
    if (plan.workspace_bytes > kMostWorkspaceBytes || !offsets_fit(problem, gemm, program, laid_out)) return;
    plan.threads = kWgmmaThreads;
    plan.num_blocks = std::min(laid_out.num_tiles, kWgmmaBlocksPerSm * device.num_sms);
    estimate(problem, device, program, gemm, &plan);
    plans->push_back(plan);
  };
  for (int32_t index = 0; index < kNumWgmmaInstances; ++index) {
    const WgmmaInstance& instance = kWgmmaInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    if (instance.block_n == 64 && gemm.n_channels <= 32) continue;
    if (instance.block_n == 32 && gemm.n_channels > 96) continue;
    const int32_t accumulators = 256 / instance.block_n / terms;
    WgmmaTile tile{};
    tile.instance = index;
    tile.block_n = instance.block_n;
    tile.split_phases = std::min(program.phases_w >= 3 ? 4 : program.phases_w, accumulators);
    // Half of the accumulators where the whole does not fit or leaves SMs idle.
    const int32_t most_blocks = accumulators / tile.split_phases;
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
      const int32_t pitch = window_pitch(problem, program, tile.tile_w);
      const int32_t capacity = tile.blocks * kBlock;
      if (tile.tile_w > capacity) continue;
      // The last row's halo need not be covered.
      tile.tile_h = std::min((capacity - tile.tile_w) / pitch + 1, gemm.positions_h);
      tile.tile_h = ceil_div(gemm.positions_h, ceil_div(gemm.positions_h, tile.tile_h));
      if (tile.tile_h == gemm.positions_h) {
        const int64_t image = (tile.tile_h + int64_t{program.extra_h}) * pitch;
        const int32_t last = (tile.tile_h - 1) * pitch + tile.tile_w;
        tile.tile_n = static_cast<int32_t>(std::min<int64_t>(problem.batch, (capacity - last) / image + 1));
      }
      add(tile);
    }
  }
}

}  // namespace convt
