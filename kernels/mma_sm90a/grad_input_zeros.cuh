// The gradient of the input, vectors: zeros in a stage where no copy brings anything, so that no position needs a mask.
#pragma once

#include "mma_sm90a/grad_input_loader.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// By all threads, before the first copy of a CTA's only tile.
__device__ __forceinline__ void zero_stages(const GradInputParams& params, uint32_t s_begin) {
  const uint32_t zeros[4] = {};
#pragma unroll 1
  for (int32_t slot = 0; slot < params.stages; ++slot) {
#pragma unroll 1
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * 16; i < params.weight_begin; i += params.threads * 16) {
      ptx::store_shared(s_begin + slot * params.stage_bytes + i, zeros);
    }
  }
  ptx::fence_proxy_async();
}

// By the loading warps, with every stage, in channels_last: where the stage's rows and columns are outside of the
// image. Tiles of a CTA differ in that, and rows of taps.
template <typename Element>
__device__ __forceinline__ void zero_outside(const GradInputParams& params, const GradInputTile& tile, int32_t group,
                                             const GradInputChunk& chunk, uint32_t s_stage) {
  const int32_t pixel_bytes = params.column_pitch * static_cast<int32_t>(sizeof(Element));
  const uint32_t s_source = s_stage + stage_shift(params, stage_source<Element>(params, tile, group, chunk));
  const int32_t row_0 = first_row(params, tile, chunk), column_0 = tile.w * params.w.stride - params.w.padding;
  const int32_t begin = max(0, -column_0), end = min(params.columns, params.w.out - column_0);
  const int32_t first = 8 * loading_thread(params), next = 8 * 32 * params.loaders, all = params.columns * pixel_bytes;
  const uint32_t zeros[2] = {};
#pragma unroll 1
  for (int32_t slot = 0; slot < params.slots; ++slot) {
    int32_t place;
    const int32_t row = row_0 + row_of_slot(params, slot, &place);
    const bool exists = row >= 0 && row < params.h.out && begin < end;
    const uint32_t s_row = s_source + place * static_cast<int32_t>(sizeof(Element));
#pragma unroll 1
    for (int32_t i = first; i < (exists ? begin * pixel_bytes : all); i += next) ptx::store_shared(s_row + i, zeros);
#pragma unroll 1
    for (int32_t i = first + end * pixel_bytes; exists && i < all; i += next) ptx::store_shared(s_row + i, zeros);
  }
  ptx::fence_proxy_async();
}

#endif

}  // namespace convt::mma_sm90a
