#include "depthwise/forward.cuh"
#include "depthwise/gradients.cuh"
#include "depthwise/instances.h"

namespace convt::depthwise {

template <DataType kDataType, Direction kDirection, int kKernel, int kStride>
const void* nchw_kernel() {
  if constexpr (kDirection == Direction::kForward) {
    using Traits = DepthwiseForwardTraits<kDataType, kKernel, kStride>;
    return reinterpret_cast<const void*>(&depthwise_forward_kernel<Traits>);
  } else {
    using Traits = DepthwiseTraits<kDataType, kKernel, kStride, kDirection == Direction::kGradInput>;
    return reinterpret_cast<const void*>(&depthwise_kernel<Traits>);
  }
}

#define CONVT_ROW(symbol, dtype, direction, kernel, stride) \
  const void* symbol() { return nchw_kernel<DataType::dtype, Direction::direction, kernel, stride>(); }
CONVT_THIN_DEPTHWISE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::depthwise
