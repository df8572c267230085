#include "depthwise/channels_last_forward.cuh"
#include "depthwise/channels_last_grad_input.cuh"
#include "depthwise/channels_last_grad_weight.cuh"
#include "depthwise/instances.h"
#include "plan/kernel_table.h"

namespace convt::depthwise {

template <typename Traits, Direction kDirection>
__device__ __forceinline__ void compute(const ChannelsLastParams& params) {
  if constexpr (kDirection == Direction::kForward) {
    channels_last_forward<Traits>(params);
  } else if constexpr (kDirection == Direction::kGradInput) {
    channels_last_grad_input<Traits>(params);
  } else {
    channels_last_grad_weight<Traits>(params);
  }
}

template <typename Traits, Direction kDirection>
__global__ void __launch_bounds__(kChannelsLastThreads, kChannelsLastBlocksPerSm)
    channels_last_kernel(const __grid_constant__ ChannelsLastParams params) {
  if (params.vector > 1) {
    compute<Traits, kDirection>(params);
  } else {
    compute<typename Traits::Single, kDirection>(params);
  }
}

const void* channels_last_kernel_of(int32_t instance) {
  return find_kernel<kThinChannelsLastInstances>(instance, [](auto row) {
    using Traits =
        ChannelsLastTraits<row->dtype, row->kernel, row->stride, row->vector, row->positions, row->rows_ahead>;
    return CONVT_KERNEL(channels_last_kernel<Traits, row->direction>);
  });
}

}  // namespace convt::depthwise
