// Candidates of the patch engine for the gradient of the weight, and their estimated times. What decides bits (chunks,
// units) is chosen for one reference GPU whatever the GPU is.
#include <algorithm>
#include <cmath>
#include <vector>

#include "patch_sm90a/grad_weight_layout.h"
#include "patch_sm90a/layout.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/tensor_map.h"

namespace convt {
namespace {

constexpr int32_t kMostBox = 256;  // elements along a dimension, which the copy engine can copy
constexpr int32_t kLeastSlots = 2, kMostSlots = 8;
constexpr int32_t kMostWaves = 4;  // of CTAs

int32_t pixels_of_step(const ConvTProblem& problem) { return static_cast<int32_t>(32 / element_bytes(problem.dtype)); }

// Both operands in boxes: x of pixels of a row, or of an image, and grad_output of columns of the rows of a tap row.
bool has_boxes(const ConvTProblem& problem, bool whole_rows) {
  const int64_t element = element_bytes(problem.dtype);
  const int64_t *x = problem.x_stride, *y = problem.y_stride;
  const auto has = [element](int64_t size, int64_t stride) { return has_map_stride(size, stride, element); };
  if ((problem.w.in > 1 && x[3] != 1) || (problem.w.out > 1 && y[3] != 1)) return false;
  if (whole_rows ? !has_runs_of_positions(problem) : !has(problem.h.in, x[2])) return false;
  return has(problem.c_in, x[1]) && has(problem.batch, x[0]) && has(problem.h.kernel, y[2]) &&
         has(problem.h.in, problem.h.kernel * y[2]) && has(problem.c_out, y[1]) && has(problem.batch, y[0]);
}

// Wavefronts of a read of grad_output: of so many lanes whose vectors are read at once, those that meet a bank.
double conflicts(const PatchGradWeightLayout& layout) {
  const int32_t words = layout.kernel_w, lanes = 32 / words;
  int32_t met[32] = {};
  int32_t most = 1;
  for (int32_t lane = 0; lane < lanes; ++lane) {
    const int32_t bank = (lane / 4 * (layout.pitch / 4) + lane % 4 * words) % 32;
    most = std::max(most, ++met[bank]);
  }
  return most;
}

// On the reference GPU: cycles of a stage by whichever of tensor cores, shared memory and L2 takes longest.
void estimate(const ConvTProblem& problem, const PatchGradWeightLayout& layout, int32_t columns, Plan* plan) {
  const DeviceInfo device = h200();
  const double taps = layout.kernel_w, steps = layout.steps, channels = columns;
  const double products = kPatchWeightConsumers * steps * taps * channels / 2;
  const double shared = kPatchWeightConsumers * steps * (taps * channels / 4 + 16 * taps * conflicts(layout)) +
                        layout.stage_bytes / 128.0;
  const double l2 = layout.stage_bytes / 26.0;
  const double few_slots = layout.slots < 3 ? 1.2 : 1;  // copies are waited for
  const double stage = 1.1 * few_slots * std::max({products, shared, l2}) + 60;
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms);
  plan->compute_us = waves * (layout.units_per_chunk * stage + 4000) / (device.clock_ghz * 1e3);
  const double element = static_cast<double>(element_bytes(problem.dtype)), copy = device.copy_gb_per_s * 1e3;
  const double slabs = static_cast<double>(slab_bytes(problem, layout.chunks));
  plan->memory_us = element * (input_elements(problem) + output_elements(problem)) / copy;
  plan->estimate_us = 9 + std::max(plan->compute_us, 1.1 * plan->memory_us) + 2.4 * slabs / copy;
}

// Plans of a tile: with as many slots as find room, and chunks for some numbers of waves of CTAs.
void consider(const ConvTProblem& problem, PatchGradWeightTile tile, BestPlans* best) {
  const PatchGradWeightInstance& instance = kPatchGradWeightInstances[tile.instance];
  PatchGradWeightLayout layout;
  tile.slots = kLeastSlots, tile.units_per_chunk = 1;
  if (!make_patch_grad_weight_layout(problem, tile, &layout)) return;
  const int32_t room = h200().shared_per_block - layout.shared_bytes;
  if (room < 0) return;
  tile.slots = std::min(kMostSlots, kLeastSlots + room / (layout.stage_bytes + 16));
  each_units_of_chunk(problem, layout.num_units, layout.pixels, layout.passes, kMostWaves, [&](int32_t units) {
    tile.units_per_chunk = units;
    PatchGradWeightLayout whole;
    if (!make_patch_grad_weight_layout(problem, tile, &whole) || whole.shared_bytes > h200().shared_per_block) return;
    const int64_t slabs = slab_bytes(problem, whole.chunks) + patch_bias_bytes(problem, whole);
    if (slabs > kMaxWorkspaceBytes) return;
    Plan plan = begin_plan(instance.name, problem.precision, tile);
    set_launch(whole, &plan);
    plan.workspace_bytes = slabs;
    plan.gives_grad_bias = true;  // taps have no pixel in common
    plan.source_on_vectors = plan.result_on_vectors = true;  // grad_output and the input
    estimate(problem, whole, instance.columns, &plan);
    best->consider(plan);
  });
}

}  // namespace

bool make_patch_grad_weight_layout(const ConvTProblem& problem, const PatchGradWeightTile& tile,
                                   PatchGradWeightLayout* layout) {
  const PatchGradWeightInstance& instance = kPatchGradWeightInstances[tile.instance];
  const Axis &h = problem.h, &w = problem.w;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  if (!makes_patches(problem) || w.kernel != instance.kernel_w || problem.batch == 0) return false;
  if (tile.ci_parts * tile.kh_parts != kPatchWeightConsumers || tile.slots < kLeastSlots) return false;
  *layout = PatchGradWeightLayout{};
  const int32_t step = pixels_of_step(problem);
  layout->whole_rows = tile.rows > 1;
  if (tile.rows < 1 || tile.rows > kMostBox || tile.pixels < 2 * step || tile.pixels % step != 0) return false;
  if (layout->whole_rows && int64_t{tile.rows} * w.in != tile.pixels) return false;
  if (!has_boxes(problem, layout->whole_rows)) return false;
  constexpr int64_t kLimit = int64_t{1} << 30;
  if (int64_t{h.in} * w.in > kLimit || problem.c_in > kLimit || problem.c_out > kLimit || problem.batch > kLimit) {
    return false;
  }
  layout->channels = static_cast<int32_t>(problem.c_in);
  layout->group_ci = static_cast<int32_t>(problem.c_in / problem.groups);
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  layout->kernel_h = h.kernel;
  layout->kernel_w = w.kernel;
  layout->ci_parts = tile.ci_parts;
  layout->kh_parts = tile.kh_parts;
  layout->co_tiles = ceil_div(layout->group_co, kPatchWeightRows);
  layout->ci_tiles = ceil_div(layout->group_ci, tile.ci_parts * instance.columns);
  layout->kh_tiles = ceil_div(h.kernel, tile.kh_parts);
  layout->rows = tile.rows;
  layout->pixels = tile.pixels;
  layout->steps = tile.pixels / step;
  layout->strips = layout->whole_rows ? 1 : ceil_div(w.in, tile.pixels);
  layout->row_units = ceil_div(h.in, tile.rows);
  const int64_t units = problem.batch * layout->row_units * layout->strips;
  const int64_t passes = problem.groups * layout->co_tiles * int64_t{layout->ci_tiles} * layout->kh_tiles;
  if (units > kLimit || passes > kLimit || tile.units_per_chunk < 1) return false;
  if (tile.units_per_chunk > kLimit / layout->steps) return false;
  layout->num_units = static_cast<int32_t>(units);
  layout->units_per_chunk = tile.units_per_chunk;
  layout->chunks = ceil_div(layout->num_units, tile.units_per_chunk);
  layout->passes = static_cast<int32_t>(passes);
  layout->num_blocks = passes * layout->chunks;
  if (layout->num_blocks > INT32_MAX) return false;

  // A strip's columns have a gap behind them, so that channels meet different banks.
  const int32_t gap = 16 * w.kernel / element;
  layout->columns = layout->whole_rows ? w.out : tile.pixels * w.kernel + gap;
  if (layout->columns > kMostBox || layout->columns * element % 16 != 0) return false;
  layout->pitch = tile.rows * layout->columns * element;
  layout->boxes = ceil_div(tile.pixels * element, 128);
  layout->gy_begin = tile.ci_parts * layout->boxes * 128 * instance.columns;
  const int64_t stage = layout->gy_begin + int64_t{tile.kh_parts} * kPatchWeightRows * layout->pitch;
  if (stage > kLimit / kMostSlots || tile.slots > kMostSlots) return false;
  layout->stage_bytes = ceil_div(static_cast<int32_t>(stage), 1024) * 1024;
  layout->slots = tile.slots;
  layout->barriers_begin = tile.slots * layout->stage_bytes;
  layout->threads = kPatchWeightThreads;
  layout->shared_bytes = layout->barriers_begin + 16 * tile.slots;
  return true;
}

void add_patch_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (!makes_patches(problem) || problem.direction != Direction::kGradWeight) return;
  const int64_t group_ci = problem.c_in / problem.groups;
  const int32_t step = pixels_of_step(problem);
  for (int32_t index = 0; index < kNumPatchGradWeightInstances; ++index) {
    const PatchGradWeightInstance& instance = kPatchGradWeightInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    if (instance.kernel_w != problem.w.kernel) continue;
    BestPlans best(6);
    for (const int32_t ci_parts : {1, 2}) {
      const int32_t kh_parts = kPatchWeightConsumers / ci_parts;
      if (ci_parts == 2 ? group_ci <= instance.columns : problem.h.kernel == 1) continue;
      const auto of_strips = [&](int32_t rows, int32_t pixels) {
        consider(problem, {index, ci_parts, kh_parts, rows, pixels, kLeastSlots, 1}, &best);
      };
      for (const int32_t pixels : {16, 32, 64, 96}) {
        if (pixels >= 2 * step && (pixels == 2 * step || pixels < 2 * problem.w.in)) of_strips(1, pixels);
      }
      for (int32_t rows = 2; rows <= problem.h.in && rows * int64_t{problem.w.in} <= 128; ++rows) {
        if (rows * problem.w.in % step == 0) of_strips(rows, rows * problem.w.in);
      }
    }
    for (Plan found : best.plans()) {
      found.estimate_us *= h200().num_sms * h200().clock_ghz / (device.num_sms * device.clock_ghz);
      plans->push_back(found);
    }
  }
}

}  // namespace convt
