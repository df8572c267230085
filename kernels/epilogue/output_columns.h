// Mapping of a tile's positions to the output's W axis.
#pragma once

#include <cstdint>

namespace convt {

// Position p and a phase of the tile map to column p * stride + phase - offset, if it is in 0 .. w_out - 1.
struct OutputColumns {
  int32_t stride;
  int32_t offset;
  int32_t w_out;
  int32_t phases;  // W phases of a tile, or the phases fused into channels
};

}  // namespace convt
