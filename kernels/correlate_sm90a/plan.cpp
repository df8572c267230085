// Candidates of the correlate engine, and their estimated times. What decides bits (chunks, units) is chosen for one
// reference GPU whatever the GPU is.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "correlate_sm90a/layout.h"
#include "plan/cost.h"
#include "plan/tensor_map.h"

namespace convt {
namespace {

constexpr int32_t kMostBox = 256;  // elements along a dimension, which the copy engine can copy
constexpr int32_t kMostBoxStep = 8;
constexpr int32_t kLeastSlots = 2, kMostSlots = 8;
constexpr int32_t kMostWaves = 4;  // of CTAs
constexpr int32_t kLeastSteps = 2;  // a stage is given back behind its second
constexpr int64_t kLimit = int64_t{1} << 30;
constexpr double kMostPacked = 1 << 28;  // elements of a tensor

int32_t pixels_of_step(const ConvTProblem& problem) { return static_cast<int32_t>(32 / element_bytes(problem.dtype)); }

// Rows of grad_output follow each other in planes, and no tap of a pixel is outside of its row.
bool has_planes(const ConvTProblem& problem) {
  const int64_t element = element_bytes(problem.dtype);
  const int64_t* stride = problem.y_stride;
  return problem.w.padding == 0 && stride[3] == 1 && stride[2] == problem.w.out &&
         int64_t{problem.h.out} * problem.w.out <= kLimit && has_map_stride(problem.c_out, stride[1], element) &&
         has_map_stride(problem.batch, stride[0], element);
}

// A tensor of NCHW in boxes of rows.
bool has_boxes(const ConvTProblem& problem, const int64_t* stride, int64_t channels, int32_t rows, int32_t columns) {
  const int64_t element = element_bytes(problem.dtype);
  return (columns == 1 || stride[3] == 1) && has_map_stride(rows, stride[2], element) &&
         has_map_stride(channels, stride[1], element) && has_map_stride(problem.batch, stride[0], element);
}
bool x_has_boxes(const ConvTProblem& problem) {
  return has_boxes(problem, problem.x_stride, problem.c_in, problem.h.in, problem.w.in);
}
bool gy_has_boxes(const ConvTProblem& problem) {
  return has_boxes(problem, problem.y_stride, problem.c_out, problem.h.out, problem.w.out);
}

// Whether rows of a tensor can be packed.
bool can_pack(const ConvTProblem& packed, const int64_t* stride, const int64_t* packed_stride, int32_t columns) {
  return (columns == 1 || stride[3] == 1) && static_cast<double>(packed.batch) * packed_stride[0] < kMostPacked;
}

// 32-bit reads of grad_output for a thread's row and pixels of a step.
int32_t words_of(const ConvTProblem& problem, const CorrelateInstance& instance) {
  return element_bytes(problem.dtype) == 2 ? (instance.taps + 1) / 2 + instance.stride_w : instance.taps;
}

// The wavefronts of these: pixels further apart than a word meet in a bank, but for neighbouring words that rows read
// in turns.
double wavefronts(const ConvTProblem& problem, const CorrelateInstance& instance) {
  const bool half = element_bytes(problem.dtype) == 2;
  const int32_t words = words_of(problem, instance), stride = problem.w.stride;
  const int32_t meet = stride % 2 == 1 ? 1 : std::min(stride & -stride, 4);
  const bool pairs = stride % 2 == 0 && (half || problem.w.dilation % 2 == 1);
  return pairs ? words / 2 * 2 * (meet / 2) + words % 2 * meet : words * meet;
}

// On the reference GPU: cycles of a stage by whichever of tensor cores, shared memory and L2 takes longest. Constants
// from 600 measured plans of 13 layers on an H100 (docs/engines/correlate.md).
void estimate(const ConvTProblem& problem, const CorrelateInstance& instance, const CorrelateLayout& layout,
              int64_t packed_bytes, Plan* plan) {
  const DeviceInfo device = h200();
  const double steps = instance.consumers * layout.rows * layout.steps;
  const double multiply = steps * instance.taps * instance.columns / 2;
  const double shared = steps * (instance.taps * instance.columns / 4.0 + 16 * wavefronts(problem, instance)) +
                        (layout.x_bytes + layout.gy_bytes) / 128.0;
  const double l2 = layout.x_bytes / 26.0 + layout.gy_bytes / (instance.boxes ? 26.0 : 20.5);
  const double few_slots = layout.slots < 3 ? 1.1 : 1;  // copies are waited for
  const double stage = few_slots * std::max({1.48 * multiply, 1.41 * shared, l2}) + 60;
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms);
  plan->compute_us = waves * (layout.units_per_chunk * stage + 8600) / (device.clock_ghz * 1e3);
  const double element = static_cast<double>(element_bytes(problem.dtype)), copy = device.copy_gb_per_s * 1e3;
  const double slabs = static_cast<double>(slab_bytes(problem, layout.chunks)),
               packed = static_cast<double>(packed_bytes);
  const double weights = static_cast<double>(weight_elements(problem));
  plan->memory_us = element * (input_elements(problem) + output_elements(problem)) / copy;
  plan->estimate_us = 6.5 + std::max(plan->compute_us, 1.1 * plan->memory_us) + 2.2 * slabs / copy + 9e-6 * weights;
  if (packed_bytes > 0) plan->estimate_us += 4 + 2.4 * packed / copy;
}

// Pixels to chunks: so many waves of CTAs of the reference GPU, chains that are not too long, slabs that fit.
bool choose_chunks(const ConvTProblem& problem, const CorrelateLayout& layout, int32_t waves, CorrelateTile* tile) {
  const int64_t least = ceil_div(int64_t{layout.num_units} * layout.rows * layout.pixels, kLongestChain);
  int64_t chunks =
      std::min<int64_t>(h200().num_sms * waves / layout.passes, kMaxWorkspaceBytes / slab_bytes(problem, 1));
  if (chunks < least) {
    if (waves < kMostWaves) return false;
    chunks = least;
  }
  chunks = std::clamp<int64_t>(chunks, 1, layout.num_units);
  tile->units_per_chunk = static_cast<int32_t>(ceil_div(int64_t{layout.num_units}, chunks));
  return true;
}

// The tile with as many slots as find room, and chunks for so many waves; false where there is none.
bool complete(const ConvTProblem& problem, int32_t waves, Plan* plan) {
  CorrelateTile& tile = tile_of<CorrelateTile>(*plan);
  CorrelateLayout layout;
  tile.slots = kLeastSlots, tile.units_per_chunk = 1;
  if (!make_correlate_layout(problem, tile, &layout)) return false;
  const int32_t room = h200().shared_per_block - layout.shared_bytes;
  if (room < 0 || !choose_chunks(problem, layout, waves, &tile)) return false;
  tile.slots = std::min(kMostSlots, kLeastSlots + room / (layout.stage_bytes + 16));
  if (!make_correlate_layout(problem, tile, &layout) || layout.shared_bytes > h200().shared_per_block) return false;
  set_launch(layout, plan);
  const ConvTProblem packed = with_packed_rows(problem, tile.packs_x, tile.packs_gy);
  const int64_t of_x = tile.packs_x ? whole_workspace(packed_rows_bytes(packed, packed.x_stride)) : 0;
  const int64_t of_gy = tile.packs_gy ? whole_workspace(packed_rows_bytes(packed, packed.y_stride)) : 0;
  if (slab_bytes(problem, layout.chunks) > kMaxWorkspaceBytes) return false;
  plan->workspace_bytes = of_x + of_gy + slab_bytes(problem, layout.chunks);
  plan->source_on_vectors = !tile.packs_gy;
  plan->result_on_vectors = !tile.packs_x;  // the input
  estimate(problem, kCorrelateInstances[tile.instance], layout, of_x + of_gy, plan);
  return true;
}

}  // namespace

ConvTProblem with_packed_rows(const ConvTProblem& problem, bool packs_x, bool packs_gy) {
  ConvTProblem packed = problem;
  const auto pack = [&](int64_t* stride, int64_t channels, int32_t rows, int32_t columns) {
    const int64_t vector = 16 / element_bytes(problem.dtype);
    stride[3] = 1;
    stride[2] = ceil_div(int64_t{columns}, vector) * vector;
    stride[1] = rows * stride[2];
    stride[0] = channels * stride[1];
  };
  if (packs_x) pack(packed.x_stride, problem.c_in, problem.h.in, problem.w.in);
  if (packs_gy) pack(packed.y_stride, problem.c_out, problem.h.out, problem.w.out);
  return packed;
}

bool make_correlate_layout(const ConvTProblem& of_call, const CorrelateTile& tile, CorrelateLayout* layout) {
  const ConvTProblem problem = with_packed_rows(of_call, tile.packs_x, tile.packs_gy);
  if (tile.instance < 0 || tile.instance >= kNumCorrelateInstances) return false;
  const CorrelateInstance& instance = kCorrelateInstances[tile.instance];
  const Axis &h = problem.h, &w = problem.w;
  if (problem.batch == 0 || tile.co_parts * tile.kh_parts * tile.kw_parts != instance.consumers ||
      tile.slots < kLeastSlots || tile.slots > kMostSlots) {
    return false;
  }
  if (instance.stride_w != 0 && (w.stride != instance.stride_w || w.dilation != 1)) return false;
  if (tile.rows < 1 || tile.rows > kMostBox || tile.steps < 1 || tile.rows * tile.steps < kLeastSteps) return false;
  if (problem.c_in > kLimit || problem.c_out > kLimit || problem.batch > kLimit) return false;
  *layout = CorrelateLayout{};
  layout->flat = !gy_has_boxes(problem);
  if (!x_has_boxes(problem) || (layout->flat && !has_planes(problem))) return false;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  layout->channels = static_cast<int32_t>(problem.c_in);
  layout->group_ci = static_cast<int32_t>(problem.c_in / problem.groups);
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  layout->h = h;
  layout->w = w;
  layout->co_parts = tile.co_parts;
  layout->kh_parts = tile.kh_parts;
  layout->kw_parts = tile.kw_parts;
  layout->co_tiles = ceil_div(layout->group_co, kCorrelateRows * tile.co_parts);
  layout->ci_tiles = ceil_div(layout->group_ci, instance.columns);
  layout->kw_tiles = ceil_div(w.kernel, instance.taps * tile.kw_parts);
  layout->kh_tiles = ceil_div(h.kernel, tile.kh_parts);
  layout->rows = tile.rows;
  layout->steps = tile.steps;
  if (tile.steps > kMostBox) return false;
  layout->pixels = tile.steps * pixels_of_step(problem);
  layout->strips = ceil_div(w.in, layout->pixels);
  layout->row_units = ceil_div(h.in, tile.rows);
  const double weights =
      static_cast<double>(problem.groups) * layout->co_tiles * layout->ci_tiles * layout->kw_tiles * layout->kh_tiles;
  const double units = static_cast<double>(problem.batch) * layout->row_units * layout->strips;
  if (units > kLimit || weights > kLimit || tile.units_per_chunk < 1) return false;
  if (tile.units_per_chunk > kLimit / (tile.rows * tile.steps)) return false;
  layout->num_units = static_cast<int32_t>(problem.batch * layout->row_units * layout->strips);
  layout->passes =
      static_cast<int32_t>(problem.groups * layout->co_tiles * layout->ci_tiles * layout->kw_tiles * layout->kh_tiles);
  layout->units_per_chunk = tile.units_per_chunk;
  layout->chunks = ceil_div(layout->num_units, tile.units_per_chunk);
  layout->num_blocks = int64_t{layout->passes} * layout->chunks;
  if (layout->num_blocks > INT32_MAX) return false;

  layout->boxes = ceil_div(tile.steps, 4);
  // Of half precision a thread reads whole words, for two pixels.
  const int64_t last_pixel = int64_t{layout->pixels - (element == 2 ? 2 : 1)} * w.stride;
  const int64_t own = element == 2 ? 2 * words_of(problem, instance) : (instance.taps - 1) * int64_t{w.dilation} + 1;
  const int64_t others = (tile.kw_parts - 1) * int64_t{instance.taps} * w.dilation;
  // A copy begins on 16 bytes, or of boxes on 32. One that is no box of 128 bytes has an odd number of 16 bytes, so
  // that channels meet different banks.
  const int32_t vector = (instance.boxes ? 32 : 16) / element;
  const int64_t columns = vector - 1 + last_pixel + others + own;
  const int64_t box_columns =
      instance.boxes ? 128 / element : (ceil_div(columns, int64_t{vector}) / 2 * 2 + 1) * vector;
  const int64_t boxes = instance.boxes ? ceil_div(columns, box_columns) : 1;
  const int64_t step = tile.rows > 1 && tile.kh_parts > 1 ? std::gcd(h.stride, h.dilation)
                       : tile.rows > 1                    ? h.stride
                       : tile.kh_parts > 1                ? h.dilation
                                                          : 1;
  const int64_t rows = (int64_t{tile.rows - 1} * h.stride + int64_t{tile.kh_parts - 1} * h.dilation) / step + 1;
  if (boxes > kMostBox || box_columns > kMostBox || rows * step > kMostBox || step > kMostBoxStep) return false;
  if (tile.rows > 1 && kCorrelateRows * tile.co_parts > kMostBox) return false;
  layout->gy_boxes = static_cast<int32_t>(boxes);
  layout->gy_box_columns = static_cast<int32_t>(box_columns);
  layout->gy_pitch = layout->gy_box_columns * element;
  layout->gy_rows = static_cast<int32_t>(rows);
  layout->gy_row_step = static_cast<int32_t>(step);
  layout->position_rows = tile.rows > 1 ? static_cast<int32_t>(h.stride / step) : 0;
  layout->kernel_rows = tile.kh_parts > 1 ? static_cast<int32_t>(h.dilation / step) : 0;
  const int64_t x_bytes = int64_t{layout->boxes} * tile.rows * instance.columns * 128;
  const int64_t gy_bytes = boxes * rows * kCorrelateRows * tile.co_parts * layout->gy_pitch;
  if (x_bytes + gy_bytes > kLimit / kMostSlots) return false;
  layout->x_bytes = static_cast<int32_t>(x_bytes);
  layout->gy_bytes = static_cast<int32_t>(gy_bytes);
  layout->stage_bytes = ceil_div(layout->x_bytes + layout->gy_bytes, 1024) * 1024;
  layout->slots = tile.slots;
  layout->barriers_begin = tile.slots * layout->stage_bytes;
  layout->threads = correlate_threads(instance.consumers);
  layout->shared_bytes = layout->barriers_begin + 16 * tile.slots;
  return true;
}

void add_correlate_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (problem.direction != Direction::kGradWeight || problem.batch > kLimit || problem.c_in > kLimit ||
      problem.c_out > kLimit) {
    return;
  }
  const bool packs_x = !x_has_boxes(problem), packs_gy = !gy_has_boxes(problem) && !has_planes(problem);
  const ConvTProblem packed = with_packed_rows(problem, packs_x, packs_gy);
  if ((packs_x && !can_pack(packed, problem.x_stride, packed.x_stride, problem.w.in)) ||
      (packs_gy && !can_pack(packed, problem.y_stride, packed.y_stride, problem.w.out))) {
    return;
  }
  const int32_t steps_of_row = ceil_div(problem.w.in, pixels_of_step(problem));
  for (int32_t index = 0; index < kNumCorrelateInstances; ++index) {
    const CorrelateInstance& instance = kCorrelateInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    BestPlans best(4);
    Plan plan = begin_plan(instance.name, problem.precision, CorrelateTile{});
    const auto consider = [&](int32_t co_parts, int32_t kh_parts, int32_t kw_parts) {
      if ((co_parts - 1) * kCorrelateRows >= problem.c_out / problem.groups || kh_parts > problem.h.kernel ||
          (kw_parts - 1) * instance.taps >= problem.w.kernel) {
        return;
      }
      for (const int32_t most_steps : {4, 8, 16}) {
        const int32_t steps = std::min(most_steps, steps_of_row);
        for (int32_t rows = 1; rows <= std::min(problem.h.in, 8); ++rows) {
          for (int32_t waves = 1; waves <= kMostWaves; ++waves) {
            plan.tile =
                CorrelateTile{index, co_parts, kh_parts, kw_parts, rows, steps, kLeastSlots, 1, packs_x, packs_gy};
            if (complete(problem, waves, &plan)) best.consider(plan);
          }
        }
        if (steps == steps_of_row) break;
      }
    };
    consider(instance.consumers, 1, 1);
    consider(1, instance.consumers, 1);
    consider(1, 1, instance.consumers);
    for (Plan found : best.plans()) {
      found.estimate_us *= h200().num_sms * h200().clock_ghz / (device.num_sms * device.clock_ghz);
      plans->push_back(found);
    }
  }
}

}  // namespace convt
