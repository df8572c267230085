// Packs weights in the layout of wgmma matrix descriptors: two planes [result channel][16 bytes] per step of K, and the
// data of each stage of a tile contiguous. Missing channels are zero. float32 is rounded to nearest TF32, or for tf32x3
// split into a high and a low term.
#pragma once

#include "pack/weights_sm90a/blocks.cuh"
#include "pack/weights_sm90a/four_taps.cuh"
#include "pack/weights_sm90a/taps.cuh"
#include "pack/weights_sm90a/whole_taps.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::pack {

// kPackThreads threads.
template <typename Traits>
__device__ __forceinline__ void pack_taps(const Params& params, int32_t number) {
#ifdef CONVT_HAS_WGMMA
  constexpr int kChannels = 2 * Traits::kChannels;
  constexpr int kBytes = Block<Traits>::kElements * static_cast<int>(sizeof(typename Traits::Element));
  constexpr int kOfWholeTaps = kPackColumns * kChannels * WholeTaps<Traits>::kStep;
  __shared__ Tap s_taps[kPackTaps];
  __shared__ uint4 s_bytes[kBytes > 16 * kOfWholeTaps ? (kBytes + 15) / 16 : kOfWholeTaps];
  if (params.whole_taps) {
    pack_whole_taps<Traits>(params, number, s_taps, s_bytes);
  } else if (params.four_taps) {
    pack_four_taps<Traits>(params, number, s_taps);
  } else if (params.by_blocks) {
    pack_block<Traits>(params, number, s_taps, s_bytes);
  } else {
    pack_tap<Traits>(params, number);
  }
#endif
}

template <typename Traits>
__global__ void pack_weights(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA  // only sm_90a kernels read the result; older targets lack cvt.rn.tf32
  ptx::let_next_kernel_begin();
  pack_taps<Traits>(params, static_cast<int32_t>(blockIdx.x));
#endif
}

}  // namespace convt::pack
