#include <algorithm>

#include "plan/mma_grad_weight.h"

namespace convt {
namespace {

// near, far, next: in pixels, or where negative in parts of a strip: its half, its quarter.
struct PixelOrder {
  int32_t near;
  int32_t far;
  int32_t next;
};
constexpr int32_t kHalf = -2, kQuarter = -4;
constexpr PixelOrder kPixelOrders[kMmaGradWeightOrders] = {
    {1, 2, 4}, {kHalf, 1, 2}, {1, kHalf, 2}, {kHalf, kQuarter, 1}, {kQuarter, kHalf, 1}};

int32_t pixels_of(int32_t value, int32_t strip) { return value > 0 ? value : strip / -value; }

}  // namespace

bool make_mma_grad_weight_layout(const ConvTProblem& problem, const MmaGradWeightPlan& plan,
                                 MmaGradWeightLayout* layout) {
  const MmaGradWeightInstance& instance = kMmaGradWeightInstances[plan.instance];
  const Axis &h = problem.h, &w = problem.w;
  constexpr int64_t kMostChannels = 1 << 16;
  if (problem.c_in > kMostChannels || problem.c_out > kMostChannels || problem.batch > INT32_MAX) return false;
  if (problem.x_stride[3] != 1 || problem.y_stride[3] != 1) return false;
  layout->h = h;
  layout->w = w;
  layout->groups = static_cast<int32_t>(problem.groups);
  layout->group_ci = static_cast<int32_t>(problem.c_in / problem.groups);
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  if (plan.strip % kMmaGradWeightPixels != 0) return false;
  layout->strip = plan.strip;
  layout->strips = ceil_div(w.in, plan.strip);
  layout->unit_rows = 1;
  layout->units_of_strip = h.in;
  const int64_t units = problem.batch * layout->strips * layout->units_of_strip;
  if (units > INT32_MAX / 2 || plan.units_per_chunk > INT32_MAX / 2) return false;
  layout->num_units = static_cast<int32_t>(units);
  layout->units_per_chunk = plan.units_per_chunk;
  layout->chunks = ceil_div(layout->num_units, plan.units_per_chunk);
  layout->block_ci = plan.block_ci;
  layout->block_co = plan.block_co;
  layout->block_kh = plan.block_kh;
  layout->block_kw = plan.block_kw;
  layout->block_runs = 1;
  layout->run_tiles = ceil_div(w.kernel, plan.block_kw);
  layout->kh_tiles = ceil_div(h.kernel, plan.block_kh);
  layout->co_tiles = ceil_div(layout->group_co, plan.block_co);
  layout->ci_tiles = ceil_div(layout->group_ci, plan.block_ci);
  const int64_t passes =
      int64_t{layout->run_tiles} * layout->kh_tiles * layout->co_tiles * layout->ci_tiles * layout->groups;
  if (passes * layout->chunks > INT32_MAX) return false;
  layout->passes = static_cast<int32_t>(passes);
  layout->warps_ci = layout->warps_co = 1;
  const int64_t gemm_rows = int64_t{plan.block_co} * plan.block_kh * plan.block_kw;
  constexpr int64_t kMostGemmRows = 1 << 10;
  if (gemm_rows > kMostGemmRows) return false;
  layout->rows = static_cast<int32_t>(gemm_rows);
  layout->taps_first = plan.taps_first;
  layout->row_units = ceil_div(layout->rows, 16 * instance.row_tiles);
  layout->column_units = ceil_div(plan.block_ci, 8 * instance.column_tiles);
  layout->warps = layout->row_units * layout->column_units;
  layout->loaders = plan.loaders;
  const int32_t warps = layout->warps + layout->loaders;
  if (warps > kMaxMmaGradWeightThreads / 32) return false;
  if (plan.stages < kMinThinWeightStages || plan.stages > kMaxThinWeightStages) return false;
  layout->threads = 32 * warps;
  layout->num_blocks = passes * layout->chunks;

  const int32_t step = greatest_common_divisor(h.stride, h.dilation);
  const int64_t rows = plan.tile_units;
  const int64_t window = ((rows - 1) * h.stride + int64_t{plan.block_kh - 1} * h.dilation) / step + 1;
  const int64_t apart = rows * plan.block_kh;
  const int64_t columns = int64_t{plan.strip - 1} * w.stride + int64_t{plan.block_kw - 1} * w.dilation + 1;
  constexpr int64_t kMostSlots = 1 << 10, kMostColumns = 1 << 14;  // far beyond what fits
  constexpr int64_t kMostRows = 1 << 28;  // of grad_output, of a stage: their numbers stay within 32 bits
  if (rows * h.stride > kMostRows) return false;
  if (rows > kMostSlots || std::min(window, apart) > kMostSlots || columns > kMostColumns) return false;
  layout->tile_units = plan.tile_units;
  layout->stages = plan.stages;
  layout->apart = apart < window;
  layout->slots = static_cast<int32_t>(layout->apart ? apart : window);
  layout->slot_q = layout->apart ? plan.block_kh : h.stride / step;
  layout->slot_k = layout->apart ? 1 : h.dilation / step;
  layout->row_step = step;
  layout->columns = static_cast<int32_t>(columns);
  layout->steps = plan.strip / kMmaGradWeightPixels;
  const PixelOrder& order = kPixelOrders[plan.pixel_order];
  layout->near_pixels = pixels_of(order.near, plan.strip);
  layout->far_pixels = pixels_of(order.far, plan.strip);
  layout->next_pixels = order.next;

  // The thin engine's pitches, and `padding` vectors behind each channel.
  const int32_t elems = vector_elements(problem.dtype);
  layout->pitches = make_thin_weight_pitches(*layout, problem);
  layout->pitches.x_channel += plan.x_padding * elems;
  layout->pitches.gy_channel += plan.gy_padding * elems;
  const int64_t bytes = element_bytes(problem.dtype);
  const int64_t x_elems = int64_t{layout->pitches.x_channel} * plan.block_ci + 2 * elems;
  // A last row may be read up to its strip's end, beyond what exists.
  const int64_t gy_elems = int64_t{layout->pitches.gy_channel} * plan.block_co + 2 * elems;
  const int64_t x_bytes = (x_elems * bytes + 127) / 128 * 128, gy_bytes = (gy_elems * bytes + 127) / 128 * 128;
  constexpr int64_t kMostBytes = 1 << 20;
  if ((x_bytes + gy_bytes) * plan.stages > kMostBytes) return false;
  layout->gy_begin = static_cast<int32_t>(x_bytes);
  layout->stage_bytes = static_cast<int32_t>(x_bytes + gy_bytes);
  layout->table_begin = kThinWeightHeadBytes + layout->stage_bytes * plan.stages;
  layout->shared_bytes = layout->table_begin + 16 * 16 * instance.row_tiles * layout->row_units;
  return true;
}

double mma_grad_weight_conflicts(const MmaGradWeightLayout& layout, int32_t element) {
  // The average of reads of `size` places, eight neighbours at a time; a sample of them, as tiles have hundreds.
  constexpr int32_t kMostReads = 8;
  auto average = [&](int32_t size, int32_t pixel_step, auto place_of) {
    const int32_t reads = ceil_div(size, 8), sample = std::min(reads, kMostReads);
    int32_t wavefronts = 0;
    for (int32_t number = 0; number < sample; ++number) {
      const int32_t first = number * reads / sample * 8;
      int32_t words[32][32], banks[32] = {}, worst = 0;  // of each bank, different ones
      for (int32_t lane = 0; lane < 32; ++lane) {
        const int32_t pixel = mma_grad_weight_pixel(layout, lane % 4) * pixel_step;
        const int32_t word = (place_of(std::min(first + lane / 4, size - 1)) + pixel) * element / 4, bank = word % 32;
        if (std::find(words[bank], words[bank] + banks[bank], word) != words[bank] + banks[bank]) continue;
        words[bank][banks[bank]++] = word;
        worst = std::max(worst, banks[bank]);
      }
      wavefronts += worst;
    }
    return static_cast<double>(wavefronts) / sample;
  };
  const double of_row = average(layout.rows, layout.w.stride, [&](int32_t row) {
    return mma_grad_weight_place(layout, mma_grad_weight_row(layout, row));
  });
  const double of_column =
      average(layout.block_ci, 1, [&](int32_t channel) { return channel * layout.pitches.x_channel; });
  const double rows = ceil_div(layout.rows, 8), columns = ceil_div(layout.block_ci, 8);
  return (rows * of_row + columns * of_column) / (rows + columns);
}

}  // namespace convt
