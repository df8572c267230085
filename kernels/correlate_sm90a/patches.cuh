// The gradient of the weight in NCHW where the kernel is the stride:
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, h, w) of x[n, ci, h, w] * gy[n, co, h * KH + kh, w * KW +
//     kw]
// As rows.cuh, but the taps of a pixel are neighbours in a row of grad_output, and a thread loads all of them at once.
// Nothing is multiplied that the formula does not have, but zeros by zeros where a strip or an image ends.
// correlate_sm90a/layout.h says what lies where. Called by launch/. Must not know: torch, how the plan was chosen, how
// slabs are added.
#pragma once

#include "correlate_sm90a/registers.cuh"
#include "element/registers.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

template <typename Kernel>
class PatchSource {
  using Element = typename Kernel::Element;
  static constexpr int kTaps = Kernel::kTaps;

 public:
  __device__ __forceinline__ PatchSource(const Kernel& kernel, const Part& part)
      : pitch_(kernel.layout.gy_pitch),
        stage_bytes_(kernel.layout.stage_bytes),
        box_step_(8 * kernel.box_channels()),
        s_columns_(kernel.s_stages + part.ci * 128) {
    const CorrelateLayout& layout = kernel.layout;
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t row = part.kh * layout.co_parts * layout.co_rows + part.co + lane / 4;
    s_first_ = kernel.s_stages + layout.x_bytes + row * pitch_ + lane % 4 * 4 * kTaps;
  }

  __device__ __forceinline__ void wait(const pipeline::Ring& ring) const { ring.wait_full(); }

  __device__ __forceinline__ void begin_unit(int32_t slot, int32_t) {
    s_step_ = s_first_ + slot * stage_bytes_;
    columns_ = ptx::MatrixDescriptor::of_rows(s_columns_ + slot * stage_bytes_, 128);
  }
  __device__ __forceinline__ void next_row() const {}  // a unit has one

  // Both rows of the thread's first pixels, then of its second ones: of halves a word has two neighbouring taps of a
  // pixel, a fragment two neighbouring pixels.
  __device__ __forceinline__ void load(uint32_t (&fragments)[kTaps][4], int32_t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t words[kTaps];
      ptx::load_shared(words, s_step_ + i % 2 * 8 * pitch_ + i / 2 * 16 * kTaps);
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        if constexpr (sizeof(Element) == 4) {
          fragments[tap][i] = words[tap];
        } else {
          fragments[tap][i] = __byte_perm(words[tap / 2], words[kTaps / 2 + tap / 2], tap % 2 == 1 ? 0x7632 : 0x5410);
        }
      }
    }
    s_step_ += 32 * kTaps;
  }

  __device__ __forceinline__ ptx::MatrixDescriptor columns(int32_t step) const {
    return columns_.moved(step / 4 * box_step_ + step % 4 * 2);
  }

 private:
  const int32_t pitch_, stage_bytes_;
  const int32_t box_step_;  // from 128 bytes of pixels of all the CTA's input channels to the next, in 16 bytes
  const uint32_t s_columns_;
  uint32_t s_first_, s_step_ = 0;
  ptx::MatrixDescriptor columns_{};
};

#endif

template <typename ElementValue, int kTaps, int kColumns, int kConsumers>
struct OfPatches : Weights<kTaps, kColumns, kConsumers> {
  using Base = Weights<kTaps, kColumns, kConsumers>;
  using Element = ElementValue;
  using typename Base::Params;

#ifdef CONVT_HAS_WGMMA
  using Base::layout, Base::params, Base::s_stages;

  __device__ __forceinline__ OfPatches(const Params& params, const unsigned char* s_bytes) : Base(params, s_bytes) {
    if (layout.ci_apart) this->ci *= kConsumers;
  }

  // Rows of a box of the input: of the CTA's channels.
  __device__ __forceinline__ int32_t box_channels() const { return layout.ci_apart ? kConsumers * kColumns : kColumns; }

  // All taps of a row are one warpgroup's: what would be parts along W are parts of the input channels.
  __device__ __forceinline__ Part part_of(int32_t warp) const {
    Part part(layout, warp);
    part.ci = part.kw * kColumns;
    part.kw = 0;
    return part;
  }

  __device__ __forceinline__ void run_producer(int32_t warp) const {
    if (warp != 0 || !ptx::elect_one()) return;
    pipeline::Ring ring = this->ring();
    const int32_t first_co = this->group * layout.gy_group + this->co;
    const int32_t first_ci = this->group * layout.x_group + this->ci;
    constexpr int32_t kBox = 128 / static_cast<int32_t>(sizeof(Element));
    const int32_t x_box_bytes = box_channels() * 128;
    const int32_t gy_part_bytes = layout.co_parts * layout.co_rows * layout.gy_pitch;
#pragma unroll 1
    for (int32_t number = this->first_unit; number < this->end_unit; ++number) {
      const Unit unit(layout, number);
      const uint32_t s_stage = s_stages + ring.slot() * layout.stage_bytes;
      ring.wait_empty();
      ptx::mbarrier_expect(ring.full(), layout.copied_bytes);
      const bool by_images = layout.gy_rows > 1;  // pixels of several rows follow each other
      const int32_t row = unit.row * layout.gy_rows;
      for (int32_t part = 0; part < layout.kh_parts; ++part) {
        const int32_t of_gy[5] = {unit.column * kTaps, this->kh + part, row, first_co, unit.image};
        ptx::tensor_copy(s_stage + layout.x_bytes + part * gy_part_bytes, &params.gy, of_gy, ring.full());
      }
      const int32_t pixel = by_images ? unit.row * layout.columns : unit.column;
      for (int32_t box = 0; box < layout.boxes; ++box) {
        const int32_t of_x[4] = {pixel + box * kBox, first_ci, by_images ? 0 : row, unit.image};
        ptx::tensor_copy(s_stage + box * x_box_bytes, &params.x, of_x, ring.full());
      }
      ring.advance();
    }
  }

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    multiply_registers<PatchSource<OfPatches>>(*this, warp);
  }
#endif
};

}  // namespace convt::correlate_sm90a
