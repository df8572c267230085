#include "depthwise/forward.cuh"
#include "depthwise/gradients.cuh"
#include "depthwise/instances.h"
#include "plan/kernel_table.h"

namespace convt::depthwise {

const void* kernel_of(int32_t instance) {
  return find_kernel<kThinDepthwiseInstances>(instance, [](auto row) {
    if constexpr (row->direction == Direction::kForward) {
      return CONVT_KERNEL(depthwise_forward_kernel<DepthwiseForwardTraits<row->dtype, row->kernel, row->stride>>);
    } else {
      constexpr bool kOfInput = row->direction == Direction::kGradInput;
      return CONVT_KERNEL(depthwise_kernel<DepthwiseTraits<row->dtype, row->kernel, row->stride, kOfInput>>);
    }
  });
}

}  // namespace convt::depthwise
