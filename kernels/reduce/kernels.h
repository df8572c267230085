// The kernels of reduce/, as host symbols.
#pragma once

#include "problem/problem.h"

namespace convt::reduce {

const void* add_slabs(DataType dtype);
const void* add_few_slabs(DataType dtype, bool together);  // kSlices at most; by kSlabNeighbours neighbours
const void* add_taps(DataType dtype);  // the same, for a result whose taps are neighbours
const void* channel_sums(DataType dtype);

}  // namespace convt::reduce
