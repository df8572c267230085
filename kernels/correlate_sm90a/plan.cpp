// Candidates of the correlate family with estimated times. Chunks and units determine the order of additions, so they
// are chosen for one reference GPU: results are the same on every GPU.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "correlate_sm90a/layout.h"
#include "pack/pixels.h"
#include "plan/cost.h"

namespace convt {
namespace {

constexpr int32_t kMostWaves = 4;  // waves of CTAs
constexpr int64_t kMostPacked = int64_t{1} << 28;  // elements per image

// Wavefronts of a thread's reads of grad_output. Pixels that are several words apart conflict, except for pairs of
// adjacent words, which rows read in alternating order.
double wavefronts(const ConvTProblem& problem, const CorrelateInstance& instance) {
  const bool half = element_bytes(problem.dtype) == 2;
  const int32_t words = correlate_words(instance), stride = problem.w.stride;
  const int32_t meet = stride % 2 == 1 ? 1 : std::min(stride & -stride, 4);
  const bool pairs = stride % 2 == 0 && (half || problem.w.dilation % 2 == 1);
  return pairs ? words / 2 * 2 * (meet / 2) + words % 2 * meet : words * meet;
}

// Coefficients of a form's estimate: measured per ideal cycles of tensor cores and of shared memory, bytes of the
// operands per cycle, a factor for fewer than 3 slots, cycles per stage and per CTA, microseconds per call, copies of
// the slabs. Fitted to 1,100 measured plans of 13 layers on an H100.
struct Fit {
  double multiply, shared, x_rate, gy_rate, few_slots, stage, cta, call, slabs;
};

Fit fit_of(const CorrelateInstance& instance) {
  const bool half = instance.dtype != DataType::kFloat32;
  if (instance.form != CorrelateForm::kPixels) {
    return {1.48, 1.41, 26, instance.form == CorrelateForm::kBoxes ? 26 : 20.5, 1.1, 60, 8600, 8.5, 2.2};
  }
  return half ? Fit{1.23, 1.03, 17.6, 42, 2.2, 166, 0, 10.4, 2.9}
              : Fit{1.4, 1.0, 26.4, 36.7, 1.21, 371, 3540, 14.6, 3.1};
}

// Cycles of a stage: the longest of tensor cores, shared memory and L2.
double cycles_of_stage(const ConvTProblem& problem, const CorrelateInstance& instance, const CorrelateLayout& layout) {
  const Fit fit = fit_of(instance);
  const double rows = layout.pairs_rows ? layout.rows / 2 : layout.rows;
  const double steps = instance.consumers * rows * layout.steps;
  const double multiply = steps * instance.taps * instance.columns / 2;
  const double columns = steps * instance.taps * instance.columns / 4;
  const double copies =
      (layout.x_bytes + layout.gy_bytes + (layout.transposed_bytes > 0 ? 2 * layout.x_bytes : 0)) / 128.0;
  const double reads = instance.form == CorrelateForm::kPixels ? instance.taps : wavefronts(problem, instance);
  const double shared = columns + 16 * steps * reads + copies;
  const double l2 = layout.x_bytes / fit.x_rate + layout.gy_bytes / fit.gy_rate;
  const double few_slots = layout.slots < 3 ? fit.few_slots : 1;  // consumers wait for copies
  return few_slots * std::max({fit.multiply * multiply, fit.shared * shared, l2}) + fit.stage;
}

void estimate(const ConvTProblem& problem, const CorrelateInstance& instance, const CorrelateLayout& layout,
              double packed, Plan* plan) {
  const DeviceInfo device = h200();
  const Fit fit = fit_of(instance);
  const double launches = std::ceil(static_cast<double>(problem.batch) / tile_of<CorrelateTile>(*plan).images);
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms);
  const double of_cta = layout.units_per_chunk * cycles_of_stage(problem, instance, layout) + fit.cta;
  plan->compute_us = launches * waves * of_cta / (device.clock_ghz * 1e3);
  const double element = static_cast<double>(element_bytes(problem.dtype)), copy = device.copy_gb_per_s * 1e3;
  const auto slabs = static_cast<double>(slab_bytes(problem, layout.chunks));
  plan->memory_us = element * (input_elements(problem) + output_elements(problem)) / copy;
  plan->estimate_us =
      fit.call + std::max(plan->compute_us, 1.1 * plan->memory_us) + fit.slabs * (2 * launches - 1) * slabs / copy;
  if (packed > 0) {
    plan->estimate_us += 4 * launches + (instance.form == CorrelateForm::kPixels ? 4.5 : 2.4) * packed / copy;
  }
}

// Considers the plans of a tile: as many stages as fit, and chunks for several numbers of waves. `rest_rows` is
// correlate_rest_rows().
void consider(const JoinedProblem& problem, CorrelateTile tile, int64_t rest_rows, BestPlans* best) {
  const CorrelateInstance& instance = kCorrelateInstances[tile.instance];
  CorrelateLayout layout;
  const CorrelateOperand x = correlate_operand(problem, instance.form, true, tile.packs_x);
  const CorrelateOperand gy = correlate_operand(problem, instance.form, false, tile.packs_gy);
  tile.images = images_of_launch(problem.batch, x.packed_bytes + gy.packed_bytes);
  tile.slots = kCorrelateLeastSlots, tile.units_per_chunk = 1;
  if (!make_correlate_layout(problem, tile, &layout)) return;
  const int32_t room = h200().shared_per_block - layout.shared_bytes;
  if (room < 0) return;
  tile.slots =
      std::min(kCorrelateMostSlots, kCorrelateLeastSlots + room / (layout.stage_bytes + kCorrelateBarrierBytes));
  const int32_t pixels = layout.rows * layout.columns;
  each_units_of_chunk(problem, layout.num_units, pixels, layout.passes, kMostWaves, [&](int32_t units) {
    tile.units_per_chunk = units;
    CorrelateLayout whole;
    if (!make_correlate_layout(problem, tile, &whole) || whole.shared_bytes > h200().shared_per_block) return;
    const int64_t bias_rows = whole.bias_rows == 0 ? 0 : int64_t{whole.chunks} * whole.bias_rows + rest_rows;
    const int64_t slabs = slab_bytes(problem, whole.chunks) + 4 * problem.c_out * bias_rows;
    if (slabs > kMaxWorkspaceBytes) return;
    Plan plan = begin_plan(instance.name, problem.precision, tile);
    set_launch(whole, &plan);
    plan.workspace_bytes =
        whole_workspace(x.packed_bytes * tile.images) + whole_workspace(gy.packed_bytes * tile.images) + slabs;
    plan.gives_grad_bias = whole.bias_rows > 0;
    plan.source_on_vectors = !tile.packs_gy;
    plan.result_on_vectors = !tile.packs_x;  // the input
    estimate(problem, instance, whole, static_cast<double>(problem.batch) * (x.packed_bytes + gy.packed_bytes), &plan);
    best->consider(plan);
  });
}

// Widths of units, multiples of `step`. Rows of the input are divided evenly into as few strips of at most 4, 8 or
// 16 steps as possible.
std::vector<int32_t> widths(int32_t columns, int32_t step, int32_t most) {
  std::vector<int32_t> found;
  for (const int32_t widest : {4 * step, 8 * step, 16 * step}) {
    const int32_t strips = ceil_div(columns, std::min(widest, most));
    const int32_t width = round_up(ceil_div(columns, strips), step);
    if (found.empty() || found.back() != width) found.push_back(width);
  }
  return found;
}

std::vector<std::pair<int32_t, int32_t>> units_of(const JoinedProblem& problem, const CorrelateInstance& instance) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  // In half precision, eight pixels share a step of K with the next row. Planes with odd rows have no pairs of rows.
  const bool pairs = problem.planes.input == problem.h.in || problem.planes.input % 2 == 0;
  const int32_t step = instance.form != CorrelateForm::kPixels || !pairs ? 32 / element : 8;
  std::vector<std::pair<int32_t, int32_t>> found;
  for (const int32_t columns : widths(problem.w.in, step, 128 * 4 / element)) {
    for (int32_t rows = 1; rows <= std::min(problem.h.in + 1, 8); ++rows) found.emplace_back(rows, columns);
  }
  return found;
}

}  // namespace

void add_correlate_plans(const ConvTProblem& asked, const DeviceInfo& device, Candidates* plans) {
  JoinedProblem problem;
  if (!join_planes(asked, &problem)) return;
  if (problem.direction != Direction::kGradWeight || problem.batch > kCorrelateMost || problem.c_in > kCorrelateMost ||
      problem.c_out > kCorrelateMost) {
    return;
  }
  const int64_t element = element_bytes(problem.dtype), rest_rows = correlate_rest_rows(problem);
  for (int32_t index = 0; index < kNumCorrelateInstances; ++index) {
    const CorrelateInstance& instance = kCorrelateInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    const bool packs_x = correlate_packs(problem, instance.form, true);
    const bool packs_gy = correlate_packs(problem, instance.form, false);
    // Check the unpacked size first: packed strides of larger tensors may overflow 64 bits.
    const int64_t x_image = problem.c_in * problem.h.in * problem.w.in;
    const int64_t gy_image = problem.c_out * problem.h.out * problem.w.out;
    if (std::max(packs_x ? x_image : 0, packs_gy ? gy_image : 0) > kMostPacked) continue;
    const CorrelateOperand x = correlate_operand(problem, instance.form, true, packs_x);
    const CorrelateOperand gy = correlate_operand(problem, instance.form, false, packs_gy);
    if (std::max(x.packed_bytes, gy.packed_bytes) > kMostPacked * element) continue;
    const bool pixels = instance.form == CorrelateForm::kPixels;
    // Tensors in channels_last are never packed as rows. float32 tensors are not packed as pixels if both are in NCHW.
    // The form of their own layout is faster. In half precision, NCHW tensors may be packed as pixels, for small images
    // and for strides and dilations that no rows kernel supports.
    const bool last = is_channels_last(problem.x_stride) || is_channels_last(problem.y_stride);
    if (pixels ? !last && problem.dtype == DataType::kFloat32 : last) continue;
    const std::vector<std::pair<int32_t, int32_t>> units = units_of(problem, instance);
    BestPlans best(4);
    const auto share = [&](int32_t parts, int32_t co_parts, int32_t kh_parts, int32_t kw_parts) {
      if ((co_parts - 1) * (kCorrelateRows / parts) >= problem.c_out / problem.groups ||
          kh_parts >= problem.h.kernel + parts || (kw_parts - 1) * instance.taps >= problem.w.kernel) {
        return;
      }
      if (!correlate_can_share(instance, parts, co_parts, kh_parts)) return;
      for (const auto& [rows, columns] : units) {
        const CorrelateTile tile{index, co_parts, kh_parts, kw_parts, rows, columns, 2, 1, 1, packs_x, packs_gy};
        consider(problem, tile, rest_rows, &best);
      }
    };
    // With 32 or 16 output channels a wgmma covers several parts, so that fewer of its rows are idle.
    for (const int32_t parts : {1, 2, 4}) {
      if (parts > 1 && problem.c_out / problem.groups > kCorrelateRows / parts) break;
      const int32_t all = parts * instance.consumers;
      for (int32_t kh_parts = 1; kh_parts <= all; ++kh_parts) {
        for (int32_t kw_parts = 1; kw_parts <= all / kh_parts; ++kw_parts) {
          const int32_t co_parts = all / kh_parts / kw_parts;
          if (co_parts * kh_parts * kw_parts == all) share(parts, co_parts, kh_parts, kw_parts);
        }
      }
    }
    for (Plan found : best.plans()) {
      found.estimate_us *= h200().num_sms * h200().clock_ghz / (device.num_sms * device.clock_ghz);
      plans->push_back(found);
    }
  }
}

}  // namespace convt
