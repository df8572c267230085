// Kernels of reduce/, as host symbols.
#pragma once

#include "problem/problem.h"

namespace convt::reduce {

const void* add_slabs(DataType dtype);
const void* add_few_slabs(DataType dtype, bool together);  // at most kSlices slabs; by kSlabNeighbours if together
const void* add_taps(DataType dtype);  // the same, for results with contiguous taps
const void* channel_sums(DataType dtype);

}  // namespace convt::reduce
