// Main loop of kernels with operand A, grad_output, in registers. A step of K is 32 bytes of pixels. A warpgroup loads
// the fragments of its taps for a step while the products of the previous step execute.
// Called by: rows.cuh, transposed.cuh. Must not know: the layout of a stage, which the Source defines.
#pragma once

#include "correlate_sm90a/bias.cuh"
#include "correlate_sm90a/weights.cuh"
#include "element/registers.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// Every consumer thread constructs a Source from (kernel, part):
//
//   wait(ring)             waits until the ring's current stage may be read
//   begin_unit(slot, unit) moves to the first row of a unit's pixels; next_row() moves to the next row
//   load(fragments, step)  loads operand A for a step of the row
//   columns(step)          returns the matrix descriptor of operand B
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
  uint32_t used = 0;  // empty barrier of the stage that products in flight may read
  int32_t step = layout.steps, row = layout.rows, unit = kernel.first_unit;  // next step, row and unit
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
    ptx::wgmma_wait<1>();  // the products that read these registers are complete
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
  ptx::let_next_kernel_begin();  // the kernel that adds the slabs, which waits for them
  kernel.store(acc, part);
  bias.store();
}

#endif

}  // namespace convt::correlate_sm90a
