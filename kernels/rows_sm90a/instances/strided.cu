#include "plan/kernel_table.h"
#include "rows_sm90a/kernel.cuh"

namespace convt::rows_sm90a::strided {

const void* kernel_of(int32_t instance) {
  return find_kernel<kStridedInstances>(
      instance, [](auto row) { return CONVT_KERNEL(hopper::convolve<Convolution<StridedShape(*row)>>); });
}

}  // namespace convt::rows_sm90a::strided
