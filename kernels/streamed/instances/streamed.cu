#include "plan/kernel_table.h"
#include "streamed/instances.h"
#include "streamed/kernel.cuh"

namespace convt::streamed {

const void* kernel_of(int32_t instance) {
  return find_kernel<kThinStreamedInstances>(
      instance, [](auto row) { return CONVT_KERNEL(streamed_kernel<row->channels, row->positions, row->taps>); });
}

}  // namespace convt::streamed
