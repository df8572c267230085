#include "plan/kernel_table.h"
#include "thin/instances.h"
#include "thin/kernel.cuh"

namespace convt::thin {

const void* kernel_of(int32_t instance) {
  return find_kernel<kThinInstances>(
      instance, [](auto row) { return CONVT_KERNEL(thin_kernel<Traits<row->dtype, row->outputs, row->positions>>); });
}

}  // namespace convt::thin
