// Results in tiles of the positions of one phase, of all images as one sequence, by channels of a group. What tiled
// kernels of the thin engine share that read their source term by term, for the forward pass and, as its adjoint
// problem, the gradient of the input.
#pragma once

#include <cstdint>

#include "direct/layout.h"
#include "plan/divisor.h"
#include "problem/problem.h"

namespace convt {

struct ThinTiledLayout : ThinDirectLayout {
  int32_t group_co;
  int32_t result_rows, result_columns;
  int32_t num_positions;  // of a phase, the most; of all images
  Divisor by_columns, by_rows;  // of the positions of an image
  Divisor by_channel_tiles, by_phases, by_position_tiles;  // a CTA's index: channel tiles are its fastest digit
  int32_t block_positions;
  int32_t block_channels;
};

// False where 32 bits do not hold the numbers.
bool make_thin_tiled_layout(const ConvTProblem& problem, int32_t block_positions, int32_t block_channels,
                            ThinTiledLayout* layout);

}  // namespace convt
