// Where a tile's positions lie along the output's W axis.
#pragma once

#include <cstdint>

namespace convt {

// Position p and phase of the tile -> column p * stride + phase - offset, if that is in 0 .. w_out - 1.
struct OutputColumns {
  int32_t stride;
  int32_t offset;
  int32_t w_out;
  int32_t phases;  // of a tile: its W phases, or the ones fused into channels
};

}  // namespace convt
