#include "depthwise/channels_last_forward.cuh"
#include "depthwise/channels_last_grad_input.cuh"
#include "depthwise/channels_last_grad_weight.cuh"
#include "depthwise/instances.h"

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

}  // namespace convt::depthwise

#define CONVT_ROW(symbol, dtype, direction, kernel, stride, vector, positions, rows_ahead)                     \
  CONVT_DEFINE_KERNEL(                                                                                         \
      depthwise, symbol,                                                                                       \
      channels_last_kernel<ChannelsLastTraits<DataType::dtype, kernel, stride, vector, positions, rows_ahead>, \
                           Direction::direction>)
CONVT_THIN_CHANNELS_LAST_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
