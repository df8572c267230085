#include "thin/outer_weight_layout.h"

#include <algorithm>

namespace convt {
namespace {

// Elements of grad_output's row from the first to the last that a pixel's columns of a CTA meet, of the CTA with the
// most. Planning asks for it thousands of times, and rows may have 2^20 columns.
int32_t longest_run(const ThinOuterWeightLayout& layout, int32_t width) {
  const int32_t block = layout.block_vectors * width;
  if (layout.w.dilation == 1 || layout.c_out % block == 0) return std::min(block, layout.row_vectors * width);
  // A CTA's columns lie further apart by what dilation leaves out between two taps, for each tap after its first.
  const int32_t most_taps = ceil_div(block - width, layout.c_out);
  int32_t run = 0;
  for (int32_t begin = 0, taps = 0; begin < layout.row_vectors && taps < most_taps; begin += layout.block_vectors) {
    const int32_t first = begin * width;
    const int32_t last = (std::min(begin + layout.block_vectors, layout.row_vectors) - 1) * width;
    run = std::max(run, outer_position(layout, last) - outer_position(layout, first) + width);
    taps = std::max(taps, last / layout.c_out - first / layout.c_out);
  }
  return run;
}

}  // namespace

bool make_thin_outer_weight_layout(const ConvTProblem& problem, const ThinOuterWeightTile& plan,
                                   ThinOuterWeightLayout* layout) {
  const int32_t width = kThinOuterWeightInstances[plan.instance].width;
  const Axis &h = problem.h, &w = problem.w;
  if (problem.groups != 1 || problem.c_in > kMostOuterElems || problem.c_out > kMostOuterElems) return false;
  constexpr int64_t kMostRows = 1 << 28;  // of grad_output, of a stage: their numbers stay within 32 bits
  if (int64_t{plan.tile_h} * h.stride > kMostRows) return false;
  if (int64_t{w.kernel} * w.dilation * problem.c_out > kMostOuterElems) return false;
  if (w.stride * problem.c_out > kMostOuterElems) return false;
  if (w.out * problem.c_out > INT32_MAX / 4 || w.padding * problem.c_out > INT32_MAX / 4) return false;
  // A vector's columns are neighbours in grad_output too, and begin on whole vectors for every pixel.
  if (w.stride * problem.c_out % width != 0 || (w.dilation != 1 && problem.c_out % width != 0)) return false;
  layout->h = h;
  layout->w = w;
  layout->c_in = static_cast<int32_t>(problem.c_in);
  layout->c_out = static_cast<int32_t>(problem.c_out);
  layout->columns = w.kernel * layout->c_out;
  layout->row_vectors = ceil_div(layout->columns, width);

  layout->tile_h = plan.tile_h;
  layout->tile_w = plan.tile_w;
  layout->h_tiles = ceil_div(h.in, plan.tile_h);
  layout->w_tiles = ceil_div(w.in, plan.tile_w);
  const int64_t pixel_tiles = problem.batch * layout->h_tiles * layout->w_tiles;
  if (pixel_tiles > INT32_MAX / 2 || plan.tiles_per_chunk > INT32_MAX / 2) return false;
  layout->pixel_tiles = static_cast<int32_t>(pixel_tiles);
  layout->tiles_per_chunk = plan.tiles_per_chunk;
  layout->chunks = ceil_div(layout->pixel_tiles, plan.tiles_per_chunk);

  layout->block_ci = plan.block_ci;
  layout->block_kh = plan.block_kh;
  layout->block_vectors = plan.block_vectors;
  layout->vector_tiles = ceil_div(layout->row_vectors, plan.block_vectors);
  layout->kh_tiles = ceil_div(h.kernel, plan.block_kh);
  layout->ci_tiles = ceil_div(layout->c_in, plan.block_ci);
  const int64_t passes = int64_t{layout->vector_tiles} * layout->kh_tiles * layout->ci_tiles;
  if (passes > INT32_MAX / layout->chunks) return false;
  layout->num_blocks = passes * layout->chunks;

  if (plan.block_ci % kOuterChannels != 0 || (plan.splits & (plan.splits - 1)) != 0) return false;
  const int64_t vectors = int64_t{plan.block_kh} * plan.block_vectors;
  const int64_t threads_columns = ceil_div(vectors * width, int64_t{kOuterColumns});
  const int64_t jobs = plan.block_ci / kOuterChannels * threads_columns;
  if (jobs * plan.splits > kMaxOuterWeightThreads) return false;
  layout->splits = plan.splits;
  layout->threads_ci = plan.block_ci / kOuterChannels;
  layout->threads_columns = static_cast<int32_t>(threads_columns);
  layout->jobs = static_cast<int32_t>(jobs);
  layout->threads = ceil_div(layout->jobs * plan.splits, 32) * 32;

  constexpr int64_t kMostElems = 1 << 18;  // far beyond what fits
  layout->rows = row_window(plan.block_kh, h.dilation, h.stride, plan.tile_h);
  const int64_t run = longest_run(*layout, width);
  const int64_t pitch = (int64_t{plan.tile_w - 1} * w.stride * layout->c_out + run + 3) / 4 * 4;
  const int64_t pixels = int64_t{plan.tile_h} * plan.tile_w;
  if (pixels > kMostElems || pitch > kMostElems || layout->rows.extent > kMostElems) return false;
  const int64_t x_elems = pixels * plan.block_ci, gy_elems = layout->rows.extent * pitch;
  if (x_elems > kMostElems || gy_elems > kMostElems) return false;
  layout->gy_pitch = static_cast<int32_t>(pitch);
  layout->gy_begin = static_cast<int32_t>(x_elems * 4);
  layout->stage_bytes = static_cast<int32_t>((x_elems + gy_elems) * 4);
  const int32_t handed_on = plan.splits / 2 * layout->jobs * kOuterChannels * kOuterColumns * 4;
  layout->list_begin = std::max(kOuterWeightStages * layout->stage_bytes, handed_on);
  layout->shared_bytes = layout->list_begin + layout->threads_columns * (kOuterColumns / width) * kOuterVectorBytes;
  return true;
}

}  // namespace convt
