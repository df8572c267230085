// Producer for form kPixels. One thread copies boxes of pixels, with 128 bytes of channels each, into a ring of stages.
// grad_output has one box per residue of its columns modulo the stride, in which a tap is a shift by whole pixels.
// Called by: pixels.cuh, transposed.cuh. Must not know: how a stage is used.
#pragma once

#include "correlate_sm90a/weights.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// Box of a tap of the CTA, and its shift in pixels. Taps past the end of the kernel repeat the last one.
struct BoxedTap {
  int32_t box, shift;

  __device__ __forceinline__ BoxedTap(const CorrelateLayout& layout, int32_t tap) {
    const int32_t existing = min(tap, layout.w.kernel - 1), turns = existing / layout.tap_period;
    box = existing - turns * layout.tap_period;
    shift = turns * layout.tap_shift;
  }
};

// Called by one warp. kChannels is the number of channels in 128 bytes.
template <int kChannels, typename Kernel>
__device__ __forceinline__ void load_pixel_boxes(const Kernel& kernel) {
  if (!ptx::elect_one()) return;
  const CorrelateLayout& layout = kernel.layout;
  pipeline::Ring ring = kernel.ring();
  const int32_t first_co = kernel.group * layout.gy_group + kernel.co;
  const int32_t first_ci = kernel.group * layout.x_group + kernel.ci;
  const int32_t x_box = layout.rows * layout.columns * 128;
#pragma unroll 1
  for (int32_t number = kernel.first_unit; number < kernel.end_unit; ++number) {
    const Unit unit(layout, number);
    const uint32_t s_x = kernel.s_stages + ring.slot() * layout.stage_bytes;
    uint32_t s_gy = s_x + layout.x_bytes;
    ring.wait_empty();
    ptx::mbarrier_expect(ring.full(), layout.copied_bytes);
    for (int32_t block = 0; block < Kernel::kColumns / kChannels; ++block) {
      const int32_t of_x[4] = {first_ci + block * kChannels, unit.column, unit.row, unit.image};
      ptx::tensor_copy(s_x + block * x_box, &kernel.params.x, of_x, ring.full());
    }
    const int32_t row = unit.row * layout.h.stride + layout.planes.after_row(unit.row) + kernel.first_row();
    const int32_t column = unit.column * layout.w.stride + kernel.first_column();
    for (int32_t block = 0; block < layout.gy_blocks; ++block) {
      for (int32_t box = 0; box < layout.gy_boxes; ++box) {
        const int32_t of_gy[4] = {first_co + block * kChannels, column + box * layout.w.dilation, row, unit.image};
        ptx::tensor_copy(s_gy, &kernel.params.gy, of_gy, ring.full());
        s_gy += layout.gy_box_bytes;
      }
    }
    ring.advance();
  }
}

#endif

}  // namespace convt::correlate_sm90a
