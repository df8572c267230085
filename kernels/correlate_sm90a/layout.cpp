// Layouts of the correlate family, for each form of operands, and the gradient of the bias in the same kernel: the taps
// over which it sums grad_output, and the elements they do not read.
#include "correlate_sm90a/layout.h"

#include <algorithm>
#include <numeric>

#include "pack/pixels.h"
#include "pack/rows.h"
#include "plan/shared_memory.h"
#include "plan/tensor_map.h"

namespace convt {
namespace {

constexpr int32_t kMostBox = 256;  // elements along a dimension of a tensor map's box
constexpr int32_t kMostBoxStep = 8;  // element stride of a tensor map's box

// Whether grad_output may be read as ranges of planes: planes are contiguous, and no tap of a pixel is outside its row.
bool has_planes(const ConvTProblem& problem) {
  const int64_t element = element_bytes(problem.dtype);
  const int64_t* stride = problem.y_stride;
  return problem.w.padding == 0 && stride[3] == 1 && stride[2] == problem.w.out &&
         int64_t{problem.h.out} * problem.w.out <= kCorrelateMost &&
         has_map_stride(problem.c_out, stride[1], element) && has_map_stride(problem.batch, stride[0], element);
}

// Sets the rows of grad_output of a stage. Returns false if no box can contain them.
bool lay_rows_of_gy(const Axis& h, const CorrelateTile& tile, CorrelateLayout* layout) {
  const int64_t step = tile.rows > 1 && tile.kh_parts > 1 ? std::gcd(h.stride, h.dilation)
                       : tile.rows > 1                    ? h.stride
                       : tile.kh_parts > 1                ? h.dilation
                                                          : 1;
  const int64_t rows = (int64_t{tile.rows - 1} * h.stride + int64_t{tile.kh_parts - 1} * h.dilation) / step + 1;
  if (rows * step > kMostBox || step > kMostBoxStep) return false;
  layout->gy_rows = static_cast<int32_t>(rows);
  layout->gy_row_step = static_cast<int32_t>(step);
  layout->position_rows = tile.rows > 1 ? static_cast<int32_t>(h.stride / step) : 0;
  layout->kernel_rows = tile.kh_parts > 1 ? static_cast<int32_t>(h.dilation / step) : 0;
  return true;
}

bool lay_rows(const ConvTProblem& problem, const CorrelateInstance& instance, const CorrelateTile& tile,
              CorrelateLayout* layout) {
  const Axis& w = problem.w;
  if (instance.stride_w != 0 && (w.stride != instance.stride_w || w.dilation != 1)) return false;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  if (tile.columns % (32 / element) != 0) return false;
  layout->steps = tile.columns / (32 / element);
  if (tile.rows * layout->steps < 2) return false;  // the second step of a unit releases the previous slot
  layout->boxes = ceil_div(layout->steps, 4);
  layout->flat = !correlate_describes(problem, CorrelateForm::kRows, false, tile.packs_gy);
  if (layout->flat && !has_planes(problem)) return false;
  // In half precision a thread reads whole words, for two pixels.
  const int64_t last_pixel = int64_t{tile.columns - (element == 2 ? 2 : 1)} * w.stride;
  const int64_t own = element == 2 ? 2 * correlate_words(instance) : (instance.taps - 1) * int64_t{w.dilation} + 1;
  const int64_t others = (tile.kw_parts - 1) * int64_t{instance.taps} * w.dilation;
  // Copies start at multiples of 16 bytes, or 32 with kBoxes. With kRows, the pitch is an odd number of 16 bytes, to
  // avoid bank conflicts between channels.
  const bool boxes = instance.form == CorrelateForm::kBoxes;
  const int32_t vector = (boxes ? 32 : 16) / element;
  const int64_t columns = vector - 1 + last_pixel + others + own;
  const int64_t box_columns = boxes ? 128 / element : (ceil_div(columns, int64_t{vector}) / 2 * 2 + 1) * vector;
  const int64_t gy_boxes = boxes ? ceil_div(columns, box_columns) : 1;
  if (gy_boxes > kMostBox || box_columns > kMostBox) return false;
  if (tile.rows > 1 && layout->co_rows * tile.co_parts > kMostBox) return false;
  layout->gy_boxes = static_cast<int32_t>(gy_boxes);
  layout->gy_box_columns = static_cast<int32_t>(box_columns);
  layout->gy_pitch = layout->gy_box_columns * element;
  const int64_t x_bytes = int64_t{layout->boxes} * tile.rows * instance.columns * 128;
  const int64_t gy_bytes = gy_boxes * layout->gy_rows * layout->co_rows * tile.co_parts * layout->gy_pitch;
  if (x_bytes + gy_bytes > kCorrelateMost / kCorrelateMostSlots) return false;
  layout->x_bytes = static_cast<int32_t>(x_bytes);
  layout->gy_bytes = static_cast<int32_t>(gy_bytes);
  layout->copied_bytes = layout->x_bytes + layout->gy_bytes;
  return true;
}

bool lay_pixels(const ConvTProblem& problem, const CorrelateInstance& instance, const CorrelateTile& tile,
                CorrelateLayout* layout) {
  const Axis& w = problem.w;
  if (tile.columns % 8 != 0 || tile.columns > kMostBox || w.stride > kMostBoxStep) return false;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  layout->pairs_rows = element == 2 && tile.columns % 16 != 0;
  if (layout->pairs_rows && tile.rows % 2 != 0) return false;
  layout->steps = tile.columns / (element == 4 || layout->pairs_rows ? 8 : 16);
  if (element == 4 && tile.rows * layout->steps < 2) return false;  // as in lay_rows()
  const int32_t taps = std::min(instance.taps * tile.kw_parts, w.kernel);  // taps past the kernel repeat the last one
  const int32_t common = std::gcd(w.stride, w.dilation);
  layout->tap_period = w.stride / common;
  layout->tap_shift = w.dilation / common;
  layout->gy_boxes = std::min(taps, layout->tap_period);
  const int64_t columns = tile.columns + int64_t{(taps - 1) / layout->tap_period} * layout->tap_shift;
  if ((columns - 1) * w.stride + 1 > kMostBox) return false;
  layout->gy_box_columns = static_cast<int32_t>(columns);
  if (!correlate_can_share(instance, kCorrelateRows / layout->co_rows, tile.co_parts, tile.kh_parts)) return false;
  layout->gy_pixel_bytes = element == 4 ? 128 : layout->co_rows * element;
  layout->gy_blocks = ceil_div(tile.co_parts * layout->co_rows * element, layout->gy_pixel_bytes);
  layout->gy_pitch = layout->gy_box_columns * layout->gy_pixel_bytes;
  const int64_t box = int64_t{layout->gy_rows} * layout->gy_pitch;
  const int64_t x_bytes = int64_t{tile.rows} * tile.columns * instance.columns * element;
  const int64_t boxes = int64_t{layout->gy_blocks} * layout->gy_boxes;
  if (x_bytes + boxes * (box + 1024) > kCorrelateMost / kCorrelateMostSlots) return false;
  layout->gy_box_bytes = static_cast<int32_t>(round_up(box, 1024));
  layout->x_bytes = static_cast<int32_t>(x_bytes);
  layout->gy_bytes = static_cast<int32_t>(boxes) * layout->gy_box_bytes;
  layout->copied_bytes = static_cast<int32_t>(x_bytes + boxes * box);
  layout->transposed_begin = layout->x_bytes + layout->gy_bytes;
  if (element == 4) layout->transposed_bytes = ceil_div(tile.rows * tile.columns, 32) * instance.columns * 128;
  return true;
}

// A separate kernel sums the elements that no summed tap reads. This pays off if they are a small part of a large
// tensor.
constexpr int64_t kLeastBytes = int64_t{64} << 20, kMostRests = 16;

// With several planes the taps cover all rows (problem/volume.h).
bool has_planes(const JoinedProblem& problem) { return problem.planes.taps != problem.h.kernel; }

// Whether kernels may compute the gradient of the bias: covering taps exist and leave few elements.
bool covers(const JoinedProblem& problem) {
  if (has_planes(problem)) return first_covering_tap(problem.w) >= 0 && num_uncovered(problem.w) == 0;
  if (first_covering_tap(problem.h) < 0 || first_covering_tap(problem.w) < 0) return false;
  const int64_t rows = problem.h.out - num_uncovered(problem.h), columns = problem.w.out - num_uncovered(problem.w);
  const int64_t all = int64_t{problem.h.out} * problem.w.out, rest = all - rows * columns;
  if (rest == 0) return true;
  const int64_t bytes = problem.batch * problem.c_out * all * element_bytes(problem.dtype);
  return bytes >= kLeastBytes && rest <= all / kMostRests;
}

// Sets the bias fields of a layout from its other fields.
void lay_bias(const JoinedProblem& problem, const CorrelateInstance& instance, CorrelateLayout* layout) {
  const bool in_registers = instance.form != CorrelateForm::kPixels || problem.dtype == DataType::kFloat32;
  if (in_registers && instance.taps > kCorrelateMostBiasTaps) return;
  // With `flat`, a strip may read columns of the next row past the end of its row.
  if (layout->flat && layout->strips * int64_t{layout->columns} != problem.w.in) return;
  if (!covers(problem)) return;
  layout->bias_kh = has_planes(problem) ? 0 : first_covering_tap(problem.h);
  layout->bias_taps = has_planes(problem) ? problem.h.kernel : problem.h.stride;
  layout->bias_kw = first_covering_tap(problem.w);
  const int32_t last = layout->bias_kw + problem.w.stride - 1;
  layout->bias_runs = last / instance.taps - layout->bias_kw / instance.taps + 1;
  layout->bias_turns = in_registers ? 1 : layout->ci_tiles;
  layout->bias_rows = layout->bias_taps * layout->bias_runs * layout->bias_turns;
}

}  // namespace

CorrelateOperand correlate_operand(const ConvTProblem& problem, CorrelateForm form, bool is_x, bool packs) {
  CorrelateOperand operand{};
  operand.channels = is_x ? problem.c_in : problem.c_out;
  operand.rows = is_x ? problem.h.in : problem.h.out;
  operand.columns = is_x ? problem.w.in : problem.w.out;
  operand.group = static_cast<int32_t>(operand.channels / problem.groups);
  const int64_t* stride = is_x ? problem.x_stride : problem.y_stride;
  std::copy_n(stride, 4, operand.stride);
  if (!packs) return operand;
  if (form == CorrelateForm::kPixels) {
    const Pixels lies = pixels_of(problem, operand.channels, operand.rows, operand.columns, stride);
    const Pixels packed = packed_pixels(problem, lies);
    const int64_t packed_stride[4] = {packed.image_stride, 1, packed.row_stride, packed.column_stride};
    std::copy_n(packed_stride, 4, operand.stride);
    operand.group = static_cast<int32_t>(packed.group_stride);
    operand.channels = packed.column_stride;
  } else {
    packed_rows(problem.dtype, operand.channels, operand.rows, operand.columns, operand.stride);
  }
  operand.packed_bytes = operand.stride[0] * element_bytes(problem.dtype);
  return operand;
}

bool correlate_describes(const ConvTProblem& problem, CorrelateForm form, bool is_x, bool packs) {
  const CorrelateOperand operand = correlate_operand(problem, form, is_x, packs);
  const int64_t element = element_bytes(problem.dtype);
  const bool pixels = form == CorrelateForm::kPixels;
  const int64_t inner = pixels ? operand.channels : operand.columns,
                between = pixels ? operand.columns : operand.channels;
  const int32_t inner_axis = pixels ? 1 : 3, other_axis = pixels ? 3 : 1;
  if (pixels && problem.groups > 1 && operand.group * element % 16 != 0) return false;
  return (inner == 1 || operand.stride[inner_axis] == 1) &&
         has_map_stride(between, operand.stride[other_axis], element) &&
         has_map_stride(operand.rows, operand.stride[2], element) &&
         has_map_stride(problem.batch, operand.stride[0], element);
}

bool correlate_packs(const ConvTProblem& problem, CorrelateForm form, bool is_x) {
  if (correlate_describes(problem, form, is_x, false)) return false;
  return is_x || form == CorrelateForm::kPixels || !has_planes(problem);
}

bool correlate_can_share(const CorrelateInstance& instance, int32_t parts, int32_t co_parts, int32_t kh_parts) {
  if (instance.form != CorrelateForm::kPixels || instance.dtype == DataType::kFloat32 || parts == 1) return true;
  return co_parts == 1 && kh_parts % parts == 0;
}

int32_t correlate_words(const CorrelateInstance& instance) {
  return instance.dtype == DataType::kFloat32 ? instance.taps : (instance.taps + 1) / 2 + instance.stride_w;
}

std::vector<CorrelateRest> correlate_rests(const JoinedProblem& problem) {
  const int32_t rows = has_planes(problem) ? 0 : num_uncovered(problem.h), columns = num_uncovered(problem.w);
  const int64_t (&stride)[4] = problem.y_stride;
  std::vector<CorrelateRest> rests;
  if (rows > 0) {
    const int64_t size[4] = {problem.batch, problem.c_out, rows, problem.w.out};
    rests.push_back({channel_sum_of(problem.dtype, size, stride), 0});
  }
  if (columns > 0) {  // transposed: each column is a row of the sum
    const int64_t size[4] = {problem.batch, problem.c_out, columns, problem.h.out - rows};
    const int64_t transposed[4] = {stride[0], stride[1], stride[3], stride[2]};
    rests.push_back({channel_sum_of(problem.dtype, size, transposed), rows * stride[2]});
  }
  return rests;
}

int64_t correlate_rest_rows(const JoinedProblem& problem) {
  if (!covers(problem)) return 0;
  int64_t rows = 0;
  for (const CorrelateRest& rest : correlate_rests(problem)) rows += num_channel_slabs(rest.sum);
  return rows;
}

bool make_correlate_layout(const JoinedProblem& problem, const CorrelateTile& tile, CorrelateLayout* layout) {
  if (tile.instance < 0 || tile.instance >= kNumCorrelateInstances) return false;
  const CorrelateInstance& instance = kCorrelateInstances[tile.instance];
  const Axis &h = problem.h, &w = problem.w;
  const bool pixels = instance.form == CorrelateForm::kPixels;
  const int32_t all_parts = tile.co_parts * tile.kh_parts * tile.kw_parts;
  const int32_t parts = all_parts / instance.consumers;  // per warpgroup
  if (problem.batch == 0 || all_parts != parts * instance.consumers || (parts != 1 && parts != 2 && parts != 4) ||
      tile.slots < kCorrelateLeastSlots || tile.slots > kCorrelateMostSlots || tile.rows < 1 || tile.rows > kMostBox ||
      tile.columns < 1 || tile.columns > kMostBox * 16 || tile.units_per_chunk < 1 || tile.images < 1 ||
      tile.images > problem.batch) {
    return false;
  }
  if (problem.c_in > kCorrelateMost || problem.c_out > kCorrelateMost || problem.batch > kCorrelateMost) return false;
  // The rows of a unit, and the tap rows of a CTA, are in one plane.
  const PlaneRows& planes = problem.planes;
  if (has_planes(problem) && planes.taps % tile.kh_parts != 0) return false;
  if (h.in != planes.input && planes.input % tile.rows != 0) return false;
  *layout = CorrelateLayout{};
  if (!correlate_describes(problem, instance.form, true, tile.packs_x)) return false;
  const CorrelateOperand x = correlate_operand(problem, instance.form, true, tile.packs_x);
  const CorrelateOperand gy = correlate_operand(problem, instance.form, false, tile.packs_gy);
  layout->channels = static_cast<int32_t>(problem.c_in);
  layout->group_ci = static_cast<int32_t>(problem.c_in / problem.groups);
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  layout->x_group = x.group;
  layout->gy_group = gy.group;
  layout->h = h;
  layout->w = w;
  layout->planes = planes;
  layout->co_rows = kCorrelateRows / parts;
  layout->co_parts = tile.co_parts;
  layout->kh_parts = tile.kh_parts;
  layout->kw_parts = tile.kw_parts;
  layout->co_tiles = ceil_div(layout->group_co, layout->co_rows * tile.co_parts);
  layout->ci_tiles = ceil_div(layout->group_ci, instance.columns);
  layout->kw_tiles = ceil_div(w.kernel, instance.taps * tile.kw_parts);
  layout->kh_tiles = ceil_div(h.kernel, tile.kh_parts);
  layout->rows = tile.rows;
  layout->columns = tile.columns;
  layout->strips = ceil_div(w.in, tile.columns);
  layout->row_units = ceil_div(h.in, tile.rows);
  const double weights =
      static_cast<double>(problem.groups) * layout->co_tiles * layout->ci_tiles * layout->kw_tiles * layout->kh_tiles;
  const double units = static_cast<double>(tile.images) * layout->row_units * layout->strips;
  if (units > kCorrelateMost || weights > kCorrelateMost) return false;
  if (tile.units_per_chunk > kCorrelateMost / (tile.rows * tile.columns)) return false;
  layout->num_units = tile.images * layout->row_units * layout->strips;
  layout->passes =
      static_cast<int32_t>(problem.groups * layout->co_tiles * layout->ci_tiles * layout->kw_tiles * layout->kh_tiles);
  layout->units_per_chunk = tile.units_per_chunk;
  layout->chunks = ceil_div(layout->num_units, tile.units_per_chunk);
  layout->num_blocks = int64_t{layout->passes} * layout->chunks;
  if (layout->num_blocks > INT32_MAX || !lay_rows_of_gy(h, tile, layout)) return false;
  if (pixels && !correlate_describes(problem, instance.form, false, tile.packs_gy)) return false;
  if (!(pixels ? lay_pixels : lay_rows)(problem, instance, tile, layout)) return false;
  layout->stage_bytes = round_up(layout->x_bytes + layout->gy_bytes, 1024) + layout->transposed_bytes;
  layout->slots = tile.slots;
  layout->threads = correlate_threads(instance.consumers);
  const bool has_ones = pixels && problem.dtype != DataType::kFloat32;
  SharedMemory smem;
  smem.take(tile.slots * layout->stage_bytes);
  layout->barriers_begin = smem.take(kCorrelateBarrierBytes * (has_ones ? kCorrelateMostSlots : tile.slots));
  if (has_ones) layout->ones_begin = smem.take(kCorrelateOnesBytes);
  layout->shared_bytes = smem.bytes();
  lay_bias(problem, instance, layout);
  return true;
}

}  // namespace convt
