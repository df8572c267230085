// Plans of the flat engine (flat_sm90a/): where a packed source has its elements, which tiles, how deep the pipelines.
//
// All images of one plane of the packed source are one sequence of positions. Rows and images are followed by as many
// zeros as the longest reach of a tap beyond them, so that a tap is the same distance in the sequence for every
// position, and a tile is any run of neighbours, across rows and images.
// Called by: families/families.h, flat_sm90a/launch.cpp, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt {

// The flat engine's tile.
struct FlatTile {
  int32_t instance;  // index into kFlatInstances
  int32_t phases;    // W phases of a tile
  int32_t consumers;  // warpgroups that multiply
  int32_t accumulators;  // of each for a channel: positions times W phases
  bool split_channels;  // the warpgroups take different channels of the same positions, not the reverse
  int32_t tile_positions;  // of the CTA
  int32_t window;    // positions of a plane in a stage
  int32_t k_steps;   // steps of K in a stage
  int32_t num_chunks;  // stages, times the residues
  int32_t source_slots, weight_slots, slot_taps, tap_bytes;
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
  int64_t plane_bytes;   // of the packed source
  int32_t num_tiles;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("phases", phases);
    field("consumers", consumers);
    field("sums", accumulators);
    field("split_channels", split_channels);
    field("tile_positions", tile_positions);
    field("window", window);
    field("num_tiles", num_tiles);
    field("k_steps", k_steps);
    field("num_chunks", num_chunks);
    field("source_slots", source_slots);
    field("weight_slots", weight_slots);
    field("slot_taps", slot_taps);
  }
};

inline constexpr int32_t kFlatChannels = 64;   // result channels of a warpgroup's tile
inline constexpr int32_t kMaxFlatTaps = 512;
// Threads of a CTA: the warpgroups that multiply, and one of which two threads load.
inline constexpr int32_t flat_threads(int32_t consumers) { return 128 * (consumers + 1); }
inline constexpr int32_t kFlatPackThreads = 256;  // of the kernel that packs the source
inline constexpr int32_t kFlatEnoughPackBlocks = 1024;  // to have memory busy
inline constexpr int32_t kFlatPassPositions = 32;  // channels_last: staged at a time by a warpgroup
inline constexpr int32_t kFlatStagedStride = kFlatChannels + 4;  // floats: no bank is met twice
inline constexpr int32_t kFlatPassColumns = 64;  // NCHW: staged at a time by a warp, for 8 channels
inline constexpr int32_t kFlatStagedFloats = 4 * 8 * (kFlatPassColumns + 20);  // of a warpgroup, in either layout
static_assert(kFlatStagedFloats >= kFlatPassPositions * kFlatStagedStride, "channels_last has room too");

// Where the elements of the packed source lie.
struct FlatGeometry {
  int32_t rows, columns;  // of the source in a residue's planes
  int32_t pitch;          // positions from one row to the next: 4 columns of the result, or several times that
  int32_t image_rows;     // rows from one image to the next
  int32_t lead;           // zeros before the first position
  int64_t positions;      // from the first one to the last that a result has
};
// False where 31 bits do not number the positions.
bool make_flat_geometry(const ConvTProblem& problem, const TapProgram& program, FlatGeometry* geometry);

// Tiles along each digit of a tile's number.
struct FlatGrid {
  int32_t channel_tiles;  // of 64 channels
  int32_t block_tiles;    // of the CTA's channels
  int64_t position_tiles;
};
FlatGrid make_flat_grid(const ConvTProblem& problem, const FlatGeometry& geometry, const FlatTile& plan);

}  // namespace convt
