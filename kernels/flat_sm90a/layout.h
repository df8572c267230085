// Plans of the flat family: layout of the packed source, tiles, pipeline depths.
//
// All images of a plane of the packed source form one sequence of positions. Zeros follow each row and image, as many
// as the furthest tap reaches past its end. Each tap is thus a constant offset in the sequence, and a tile is any
// contiguous run of positions, across rows and images.
// Called by: families/families.h, flat_sm90a/launch.cpp, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/tap_program.h"
#include "plan/tile.h"
#include "problem/problem.h"

namespace convt {

struct FlatTile {
  int32_t instance;  // index into kFlatInstances
  int32_t phases;    // W phases per tile
  int32_t consumers;  // consumer warpgroups
  int32_t accumulators;  // per warpgroup and channel: positions times W phases
  bool split_channels;  // warpgroups compute different channels of the same positions; otherwise the reverse
  int32_t tile_positions;  // per CTA
  int32_t window;    // positions per plane in a stage
  int32_t k_steps;   // steps of K per stage
  int32_t num_chunks;  // chunks of source channels; each has one stage per residue
  int32_t source_slots, weight_slots, slot_taps, tap_bytes;
  int32_t weights_begin, staged_begin, barriers_begin;  // byte offsets in shared memory
  int64_t plane_bytes;   // per plane of the packed source
  int32_t num_tiles;

  std::vector<TileField> fields() const {
    return list_fields(
        "phases, consumers, sums, split_channels, tile_positions, window, num_tiles, k_steps, num_chunks, "
        "source_slots, weight_slots, slot_taps",
        phases, consumers, accumulators, split_channels, tile_positions, window, num_tiles, k_steps, num_chunks,
        source_slots, weight_slots, slot_taps);
  }
};

inline constexpr int32_t kFlatChannels = 64;   // result channels per warpgroup
inline constexpr int32_t kMaxFlatTaps = 512;
// Threads per CTA: consumer warpgroups and one producer warpgroup.
inline constexpr int32_t flat_threads(int32_t consumers) { return 128 * (consumers + 1); }
inline constexpr int32_t kFlatPackThreads = 256;  // per CTA of the packing kernel
inline constexpr int32_t kFlatEnoughPackBlocks = 1024;  // CTAs of the packing kernel that saturate memory bandwidth
inline constexpr int32_t kFlatPassPositions = 32;  // channels_last epilogue: positions per pass of a warpgroup
inline constexpr int32_t kFlatStagedStride = kFlatChannels + 4;  // floats per position; avoids bank conflicts
inline constexpr int32_t kFlatPassColumns = 64;  // NCHW epilogue: columns of 8 channels per pass of a warp
inline constexpr int32_t kFlatStagedFloats = 4 * 8 * (kFlatPassColumns + 20);  // per warpgroup, in either layout
static_assert(kFlatStagedFloats >= kFlatPassPositions * kFlatStagedStride, "channels_last has room too");

// Layout of the packed source.
struct FlatGeometry {
  int32_t rows, columns;  // source elements per residue
  int32_t pitch;          // positions per row, with its zeros; a multiple of 4 result columns
  int32_t image_rows;     // rows per image, with its zero rows
  int32_t lead;           // zeros before the first position
  int64_t positions;      // from the first to the last position with a result
};
// Returns false if positions exceed 32-bit indices.
bool make_flat_geometry(const ConvTProblem& problem, const TapProgram& program, FlatGeometry* geometry);

// Number of tiles along each dimension.
struct FlatGrid {
  int32_t channel_tiles;  // tiles of 64 channels
  int32_t block_tiles;    // channel tiles of CTAs
  int64_t position_tiles;
};
FlatGrid make_flat_grid(const ConvTProblem& problem, const FlatGeometry& geometry, const FlatTile& plan);

}  // namespace convt
