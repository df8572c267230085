// How a tile of the scatter engine (scatter_sm90a/) lies in memory: layers with few output channels.
//
// Positions are counted from the padded output's edge, so that tap row t * stride + phase of every phase reads source
// row q - t. A source row is multiplied by the weights of all taps at once; what comes of tap rows t * stride + phase
// belongs to position row q + t, whose sums are slot t of a thread's accumulators. When a source row is done,
// slot 0 is complete along H and leaves for shared memory, where the taps along W are added up, and the other slots
// move one down. A tile is `tile_rows` position rows of up to 64 columns, of one image or of narrow ones beside each
// other. Called by: scatter_sm90a/plan.cpp, scatter_sm90a/launch.cpp, the kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/problem.h"

namespace convt {

// The scatter engine's tile.
struct ScatterTile {
  int32_t instance;     // index into kScatterInstances
  int32_t strips;       // images beside each other
  int32_t tile_rows;    // of positions
  int32_t chunk_steps;  // steps of K in a stage, 32 bytes of channels each
  int32_t stages;       // pipeline depth

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("strips", strips);
    field("tile_h", tile_rows);
    field("chunk_steps", chunk_steps);
    field("stages", stages);
  }
};

inline constexpr int32_t kScatterPositions = 64;  // of a source row, that a product takes
inline constexpr int32_t kScatterPlane = 76;      // elements from one staged column to the next
inline constexpr int32_t kScatterRowBytes = 128;  // of a position's channels in a stage, in channels_last
inline constexpr int32_t kScatterBatch = 4;       // steps of K whose products follow each other
inline constexpr int32_t kScatterMostTerms = 32;  // taps along W of a result
inline constexpr int32_t kScatterConsumerThreads = 128;  // that multiply
// That add up and store. In tf32x3 they and the loading warp are one warpgroup, which gives registers to the other.
CONVT_HOST_DEVICE constexpr int32_t scatter_store_threads(bool split) { return split ? 96 : 128; }
CONVT_HOST_DEVICE constexpr int32_t scatter_work_threads(bool split) {
  return kScatterConsumerThreads + scatter_store_threads(split);
}
CONVT_HOST_DEVICE constexpr int32_t scatter_threads(bool split) { return scatter_work_threads(split) + 32; }
inline constexpr int32_t kScatterMostWeights = 32;   // that a thread has on their way at once

struct ScatterLayout {
  int32_t batch, c_in, c_out;
  int32_t kernel_h, kernel_w;
  Axis h, w;

  int32_t slots;         // that taps need, at most the instance's
  int32_t slot_columns;  // of a slot: phases along H with taps, channels, taps along W
  int32_t strips;        // images beside each other
  int32_t strip_log2;    // positions of each
  int32_t pitch;         // elements of a row in a stage, in channels_last positions

  // Positions whose results exist, [first_row, end_row) x [first_column, end_column), and their tiles: counts along
  // each digit of a tile's number, fastest first; then strips of images.
  int32_t first_row, end_row, tile_rows;
  int32_t first_column, end_column;
  int32_t begin_w;    // the first tile's source column
  int32_t advance_w;  // columns from one tile to the next
  int32_t reach_w;    // source columns before a position that it reads
  FastDivmod column_tiles, row_tiles;
  int32_t num_tiles;

  // The taps along W of a result: every term_kw-th, of which there are `terms` at most. From one to the next the source
  // column goes down by term_source and the staged place up by term_step bytes.
  int32_t term_kw, terms, term_source, term_step;
  int32_t residue_step;  // dilation modulo stride

  int32_t steps;  // of K, 32 bytes of channels each
  int32_t chunk_steps, chunk_channels;  // of a stage
  int32_t box_channels;  // of a copy; those of a stage behind them stay zero
  int32_t num_chunks;
  int32_t stages, stage_bytes;
  int32_t num_planes;  // of a position row's results: phases along H times channels
  int32_t num_units;   // columns of a tile's results, in channels_last times channels
  int32_t weight_batch, weight_units;  // channels of a tap that a thread brings, whole vectors, and such pieces in all
  int32_t weight_threads;  // that bring them
  FastDivmod by_taps, by_kernel_h, by_kernel_w, by_stride_h, by_stride_w, by_channels;
  int32_t weights_begin, staged_begin, staged_bytes, unit_begin, plane_begin, barriers_begin;  // in shared memory
  int32_t shared_bytes;
};

// Everything that follows from a plan's instance and tile; false where it is not legal.
bool make_scatter_layout(const ConvTProblem& problem, const ScatterTile& plan, ScatterLayout* layout);

}  // namespace convt
