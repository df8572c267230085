#include "gather/instances.h"
#include "gather/kernel.cuh"
#include "plan/kernel_table.h"

namespace convt::gather {

const void* kernel_of(int32_t instance) {
  return find_kernel<kThinGatherInstances>(
      instance, [](auto row) { return CONVT_KERNEL(gather_kernel<row->channels, row->positions>); });
}

}  // namespace convt::gather
