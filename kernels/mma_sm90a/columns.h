// What the kernels of the mma engine's forward pass have in common.
#pragma once

#include "mma_sm90a/layout.h"

namespace convt {

// Fills what follows from the problem and the channels of a pass: strides, axes, groups, columns, steps of K. False
// where tables are too small.
bool make_mma_columns(const ConvTProblem& problem, int32_t block_co, bool split_phases, const MmaInstance& instance,
                      MmaLayout* layout);

}  // namespace convt
