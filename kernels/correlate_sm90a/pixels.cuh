// Gradient of the weight in half precision and channels_last. Both operands of a wgmma are boxes of pixels with 64
// channels in shared memory, which matrix descriptors transpose so that K is pixels.
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, h, w) of
//         x[n, ci, h, w] * gy[n, co, h * stride_h - padding_h + kh * dilation_h, w * stride_w - padding_w + kw * ...]
// Layout: correlate_sm90a/layout.h. Called by launch/. Must not know: torch, how the plan was chosen, how slabs are
// added.
#pragma once

#include "correlate_sm90a/bias.cuh"
#include "correlate_sm90a/pixel_boxes.cuh"
#include "correlate_sm90a/weights.cuh"
#include "element/registers.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/shared.cuh"

namespace convt::correlate_sm90a {

template <typename ElementValue, int kTaps, int kColumns, int kConsumers>
struct OfPixels : Weights<kTaps, kColumns, kConsumers> {
  using Base = Weights<kTaps, kColumns, kConsumers>;
  using Element = ElementValue;
  using typename Base::Params;

#ifdef CONVT_HAS_WGMMA
  using Base::Base, Base::layout, Base::params, Base::s_stages;

  __device__ __forceinline__ void init_barriers() const {
    Base::init_barriers();
    if (threadIdx.x < kCorrelateOnesBytes / 4) {
      const uint32_t ones = std::is_same_v<Element, __half> ? 0x3c003c00 : 0x3f803f80;
      ptx::store_shared(s_stages + layout.ones_begin + threadIdx.x * 4, ones);
      ptx::fence_proxy_async();
    }
  }

  __device__ __forceinline__ void run_producer(int32_t warp) const {
    if (warp == 0) load_pixel_boxes<64>(*this);
  }

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    const Part part(layout, warp / 4 * 4);  // first part of the warpgroup; further parts are the next rows of taps
    // Distance between steps of K in units of 16 bytes. A step is 16 pixels, or eight pixels of each of two rows.
    const int32_t x_step = layout.pairs_rows ? 64 : 128, gy_step = layout.gy_pixel_bytes / (128 / x_step);
    const int32_t rows_of_step = layout.pairs_rows ? 2 : 1;
    const int32_t x_row = layout.columns * 8 * rows_of_step;
    const int32_t gy_row = layout.position_rows * layout.gy_pitch / 16 * rows_of_step;
    const int32_t x_eight = layout.pairs_rows ? layout.columns * 128 : 1024;
    const int32_t gy_eight = layout.pairs_rows ? layout.position_rows * layout.gy_pitch : 8 * layout.gy_pixel_bytes;
    const auto first_x =
        ptx::MatrixDescriptor::of_transposed_rows(s_stages, 128, layout.rows * layout.columns * 128, x_eight);
    const int32_t gy_tap_row = layout.kernel_rows * layout.gy_pitch;
    const auto first_gy = ptx::MatrixDescriptor::of_transposed_rows(
        s_stages + layout.x_bytes + part.co / kCorrelateRows * layout.gy_boxes * layout.gy_box_bytes +
            part.kh * gy_tap_row,
        layout.gy_pixel_bytes, gy_tap_row, gy_eight);
    uint32_t taps[kTaps];  // offsets of taps from the CTA's first, in units of 16 bytes
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const BoxedTap boxed(layout, part.kw * kTaps + tap);
      taps[tap] = (boxed.box * layout.gy_box_bytes + boxed.shift * layout.gy_pixel_bytes) / 16;
    }
    pipeline::Ring ring = this->ring();
    float acc[kTaps][kColumns / 2];
    element::clear(acc);
    BiasOfOnes<OfPixels> bias(*this, warp);
    uint32_t used = 0;  // empty barrier of the previous stage
#pragma unroll 1
    for (int32_t number = this->first_unit; number < this->end_unit; ++number) {
      ring.wait_full();
      const uint32_t stage = ring.slot() * layout.stage_bytes / 16;
      const auto multiply = [&](auto&& also) {
#pragma unroll 1
        for (int32_t row = 0; row < layout.rows / rows_of_step; ++row) {
          auto gy = first_gy.moved(stage + row * gy_row);
          auto x = first_x.moved(stage + row * x_row);
#pragma unroll 1
          for (int32_t step = 0; step < layout.steps; ++step) {
            ptx::wgmma_fence();
#pragma unroll
            for (int tap = 0; tap < kTaps; ++tap) {
              const auto of_tap = gy.moved(taps[tap]);
              ptx::wgmma_transposed<Element>(acc[tap], of_tap, x, true);
              also(tap, of_tap);
            }
            gy = gy.moved(gy_step);
            x = x.moved(x_step);
          }
        }
      };
      if (bias.counts(number)) {
        multiply([&](int tap, const auto& of_tap) { bias.multiply(tap, of_tap); });
      } else {
        multiply([](int, const auto&) {});
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (used != 0) pipeline::release(used);
      used = ring.empty();
      ring.advance();
    }
    ptx::wgmma_wait<0>();
    element::fence_registers(acc);
    ptx::let_next_kernel_begin();  // the kernel that adds the slabs, which waits for them
    const Part own(layout, warp);
    this->store(acc, own);
    bias.store(own);
  }
#endif
};

}  // namespace convt::correlate_sm90a
