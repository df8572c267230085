// Tiles of the scatter family: layers with few output channels.
//
// Positions are counted from the padded output's edge, so that tap row t * stride + phase of every phase reads source
// row q - t. A source row is multiplied by the weights of all taps at once. Products with tap rows t * stride + phase
// belong to position row q + t, which is slot t of a thread's accumulators. After each source row, slot 0 is complete
// along H and moves to shared memory, where the taps along W are added. The other slots move down by one. A tile is
// `tile_rows` position rows of up to 64 columns, of one image or of several adjacent narrow images. Called by:
// scatter_sm90a/plan.cpp, scatter_sm90a/launch.cpp, the kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/problem.h"

namespace convt {

struct ScatterTile {
  int32_t instance;     // index into kScatterInstances
  int32_t strips;       // adjacent images in a tile
  int32_t tile_rows;    // rows of positions
  int32_t chunk_steps;  // steps of K per stage, 32 bytes of channels each
  int32_t stages;       // pipeline depth

  std::vector<TileField> fields() const {
    return list_fields("strips, tile_h, chunk_steps, stages", strips, tile_rows, chunk_steps, stages);
  }
};

inline constexpr int32_t kScatterPositions = 64;  // positions of a source row per product
inline constexpr int32_t kScatterPlane = 76;      // elements between staged columns
inline constexpr int32_t kScatterRowBytes = 128;  // bytes of a position's channels in a stage, in channels_last
inline constexpr int32_t kScatterBatch = 4;       // steps of K per group of products
inline constexpr int32_t kScatterMostTerms = 32;  // taps along W per result
inline constexpr int32_t kScatterConsumerThreads = 128;  // consumer threads
// Threads that sum taps and store. In tf32x3 they form a warpgroup with the loading warp, and give registers to the
// other.
CONVT_HOST_DEVICE constexpr int32_t scatter_store_threads(bool split) { return split ? 96 : 128; }
CONVT_HOST_DEVICE constexpr int32_t scatter_work_threads(bool split) {
  return kScatterConsumerThreads + scatter_store_threads(split);
}
CONVT_HOST_DEVICE constexpr int32_t scatter_threads(bool split) { return scatter_work_threads(split) + 32; }
inline constexpr int32_t kScatterMostWeights = 32;   // loads in flight per thread

struct ScatterLayout {
  int32_t batch, c_in, c_out;
  int32_t kernel_h, kernel_w;
  Axis h, w;

  int32_t slots;         // slots that the taps need, at most the instance's
  int32_t slot_columns;  // columns per slot: H phases with taps, channels, taps along W
  int32_t strips;        // adjacent images in a tile
  int32_t strip_log2;    // positions per strip
  int32_t pitch;         // elements of a row in a stage; positions in channels_last

  // Positions whose results exist, [first_row, end_row) x [first_column, end_column), and their tiles: counts along
  // each digit of a tile's index, fastest first. Strips of images are the last digit.
  int32_t first_row, end_row, tile_rows;
  int32_t first_column, end_column;
  int32_t begin_w;    // source column of the first tile
  int32_t advance_w;  // columns between tiles
  int32_t reach_w;    // source columns that a position reads before it
  FastDivmod column_tiles, row_tiles;
  int32_t num_tiles;

  // The taps along W of a result: every term_kw-th tap, at most `terms`. From one to the next the source column
  // decreases by term_source and the staged address increases by term_step bytes.
  int32_t term_kw, terms, term_source, term_step;
  int32_t residue_step;  // dilation modulo stride

  int32_t steps;  // steps of K, 32 bytes of channels each
  int32_t chunk_steps, chunk_channels;  // per stage
  int32_t box_channels;  // channels per copy; later channels of a stage stay zero
  int32_t num_chunks;
  int32_t stages, stage_bytes;
  int32_t num_planes;  // of a position row's results: H phases times channels
  int32_t num_units;   // columns of a tile's results, in channels_last times channels
  int32_t weight_batch, weight_units;  // channels of a tap per thread, in whole vectors; number of such pieces
  int32_t weight_threads;  // threads that load weights
  FastDivmod by_taps, by_kernel_h, by_kernel_w, by_stride_h, by_stride_w, by_channels;
  int32_t weights_begin, staged_begin, staged_bytes, unit_begin, plane_begin,
      barriers_begin;  // offsets in shared memory
  int32_t shared_bytes;
};

// Completes the layout from a plan's tile. Returns false if the tile is not legal.
bool make_scatter_layout(const ConvTProblem& problem, const ScatterTile& plan, ScatterLayout* layout);

}  // namespace convt
