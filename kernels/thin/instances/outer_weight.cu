#include "plan/kernel_table.h"
#include "thin/instances.h"
#include "thin/outer_weight.cuh"

namespace convt::thin {

const void* outer_weight_kernel_of(int32_t instance) {
  return find_kernel<kThinOuterWeightInstances>(instance,
                                                [](auto row) { return CONVT_KERNEL(outer_weight_kernel<row->width>); });
}

}  // namespace convt::thin
