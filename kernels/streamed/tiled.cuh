// Results of a CTA of gathered terms or streamed sources (streamed/layout.h).
#pragma once

#include "streamed/layout.h"

namespace convt::streamed {

struct ResultTile {
  int32_t group;
  int32_t phase_h;
  int32_t phase_w;
  int32_t position;  // first position
  int32_t channel;  // first channel, within the group
};

__device__ __forceinline__ ResultTile result_tile(const ThinTiledLayout& layout) {
  ResultTile tile;
  int32_t phase;
  int32_t rest = layout.by_channel_tiles(static_cast<int32_t>(blockIdx.x), &tile.channel);
  rest = layout.by_phases(rest, &phase);
  tile.group = layout.by_position_tiles(rest, &tile.position);
  tile.phase_h = layout.by_phases_w(phase, &tile.phase_w);
  tile.channel *= layout.block_channels;
  tile.position *= layout.block_positions;
  return tile;
}

// A position of a phase.
struct TiledPosition {
  int32_t image, row, column;
};

// Coordinates and offsets of a position in source and result.
struct TiledPlace {
  int32_t source_row, source_column;  // coordinates that the first tap reads
  int32_t source;  // element offset that the first tap reads; may be outside the image
  int32_t result;  // element offset, or -1 if the position has no result

  __device__ __forceinline__ TiledPlace(const ThinTiledLayout& layout, const ResultTile& tile, const Phase& h,
                                        const Phase& w, const TiledPosition& position)
      : source_row(position.row * layout.row_step + h.first_shift),
        source_column(position.column * layout.column_step + w.first_shift) {
    const int32_t result_row = position.row * layout.by_phases_h.value + tile.phase_h;
    const int32_t result_column = position.column * layout.by_phases_w.value + tile.phase_w;
    source = position.image * static_cast<int32_t>(layout.source_stride[0]) +
             source_row * static_cast<int32_t>(layout.source_stride[2]) +
             source_column * static_cast<int32_t>(layout.source_stride[3]);
    result = position.image * static_cast<int32_t>(layout.result_stride[0]) +
             result_row * static_cast<int32_t>(layout.result_stride[2]) +
             result_column * static_cast<int32_t>(layout.result_stride[3]);
    if (result_row >= layout.result_rows || result_column >= layout.result_columns) result = -1;
  }
};

}  // namespace convt::streamed
