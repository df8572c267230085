// The mainloop of kernels whose first operand, grad_output, is in registers: a step of K is 32 bytes of pixels, for
// which a warpgroup loads the fragments of its taps while the products of the step before are on their way.
// Called by: rows.cuh, transposed.cuh. Must not know: how operands lie in a stage, which is its Source's.
#pragma once

#include "correlate_sm90a/bias.cuh"
#include "correlate_sm90a/weights.cuh"
#include "element/registers.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// A Source is made of (kernel, part) by every thread that multiplies:
//
//   wait(ring)             until the ring's stage can be read
//   begin_unit(slot, unit) the first row of a unit's pixels, next_row() each further one
//   load(fragments, step)  the first operands of a step of the row
//   columns(step)          and the second one
template <typename Source, typename Kernel>
__device__ __forceinline__ void multiply_registers(const Kernel& kernel, int32_t warp) {
  constexpr int kTaps = Kernel::kTaps, kColumns = Kernel::kColumns;
  using Element = typename Kernel::Element;
  const CorrelateLayout& layout = kernel.layout;
  const Part part(layout, warp);
  Source source(kernel, part);
  BiasOfFragments bias(kernel, part);
  pipeline::Ring ring = kernel.ring();
  float acc[kTaps][kColumns / 2];
  uint32_t fragments[2][kTaps][4];
  element::clear(acc);
  uint32_t used = 0;  // the barrier of the stage whose last products may be in flight
  int32_t step = layout.steps, row = layout.rows, unit = kernel.first_unit;  // the next ones
  const auto multiply = [&](uint32_t (&of_step)[kTaps][4]) {
    const uint32_t left = used;
    if (step == layout.steps) {
      step = 0;
      if (++row >= layout.rows) {
        if (unit != kernel.first_unit) {
          used = ring.empty();
          ring.advance();
        }
        source.wait(ring);
        source.begin_unit(ring.slot(), unit);
        ++unit;
        row = 0;
      } else {
        source.next_row();
      }
    }
    ptx::wgmma_wait<1>();  // the products of these registers' last fragments are done
    element::fence_registers(of_step);
    if (left != 0) {
      pipeline::release(left);
      used = 0;
    }
    source.load(of_step, step);
    if (bias.is_asked) bias.take(of_step);
    element::fence_registers(of_step);
    const auto columns = source.columns(step);
    ptx::wgmma_fence();
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) ptx::wgmma<Element>(acc[tap], of_step[tap], columns, true);
    ptx::wgmma_commit();
    ++step;
  };
  int32_t left = (kernel.end_unit - kernel.first_unit) * layout.rows * layout.steps;
#pragma unroll 1
  for (; left > 1; left -= 2) {
    multiply(fragments[0]);
    multiply(fragments[1]);
  }
  if (left > 0) multiply(fragments[0]);
  ptx::wgmma_wait<0>();
  element::fence_registers(fragments);
  element::fence_registers(acc);
  ptx::let_next_kernel_begin();  // which adds the slabs, and waits for them
  kernel.store(acc, part);
  bias.store();
}

#endif

}  // namespace convt::correlate_sm90a
