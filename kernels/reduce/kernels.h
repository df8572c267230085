// The kernels of reduce/, as host symbols.
#pragma once

#include "problem/problem.h"

namespace convt::reduce {

const void* add_slabs(DataType dtype);
const void* add_few_slabs(DataType dtype);  // kSlices at most
const void* channel_sums(DataType dtype);

}  // namespace convt::reduce
