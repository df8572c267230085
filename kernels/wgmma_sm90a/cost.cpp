#include <algorithm>
#include <cmath>

#include "plan/plan.h"
#include "wgmma_sm90a/instances.h"
#include "wgmma_sm90a/layout.h"

namespace convt {
namespace {

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

}  // namespace

double LoaderWork::cycles(int32_t parts) const {
  return ceil_div(units * parts, kWgmmaLoaders) * (unit_cycles + work_cycles * work / parts);
}

int32_t LoaderWork::parts() const {
  int32_t best = 1;
  for (int32_t parts = 2; work % (parts * least_work) == 0; parts *= 2) {
    if (cycles(parts) < cycles(best)) best = parts;
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
  const int32_t planes = 2 * plan.k_steps, parts = split_operands(problem) ? 2 : 1;
  const bool half = problem.dtype != DataType::kFloat32;
  if (plan.by_channels) return LoaderWork{positions, planes, 1, 0, half ? 0.0 : 69.0 * parts};
  const bool gathers = !rows_begin_on_vectors(problem);
  if (half && source_vector(problem) > 1) return LoaderWork{positions / 2, planes, 1, 80, gathers ? 240.0 : 250.0};
  return LoaderWork{positions, planes, half ? 1 : 2, 80, half ? 190.0 : (gathers ? 160.0 : 115.0) * parts};
}

// Times in microseconds. What a tile costs is a sum over its work, fitted to 560 measured plans of 21 layers: the CTAs
// of an SM fill each other's gaps only as far as the rates below already say. docs/engines/wgmma.md has the fit.
void estimate_wgmma(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program,
                    const GemmShape& gemm, Plan* whole) {
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
  const double margin = half_sectors > 0 ? 1.17 : 1.1;
  whole->estimate_us = margin * std::max(whole->compute_us, 1.2 * whole->memory_us) + 9 + pack;
}

}  // namespace convt
