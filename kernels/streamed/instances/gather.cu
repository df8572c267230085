#include "plan/kernel_table.h"
#include "streamed/gather.cuh"
#include "streamed/instances.h"

namespace convt::streamed {

const void* gather_kernel_of(int32_t instance) {
  return find_kernel<kThinGatherInstances>(
      instance, [](auto row) { return CONVT_KERNEL(gather_kernel<row->channels, row->positions>); });
}

}  // namespace convt::streamed
