// Gradient of the weight in NCHW, where pixels of a row are contiguous:
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, h, w) of
//         x[n, ci, h, w] * gy[n, co, h * stride_h - padding_h + kh * dilation_h, w * stride_w - padding_w + kw * ...]
// A CTA computes one tile of weights over one chunk of pixels. Consumer warpgroups multiply. One producer thread copies
// boxes of both operands by tensor map, with zeros outside the image. Units are accumulated in order. Layout:
// correlate_sm90a/layout.h. Called by launch/. Must not know: torch, how the plan was chosen, how slabs are added.
#pragma once

#include "correlate_sm90a/registers.cuh"
#include "correlate_sm90a/taps.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// Column of a row of grad_output that the CTA's first tap reads for input column 0. Copies must start at multiples of
// 16 bytes, and are faster from multiples of 32. If rows are not aligned (`flat`), a plane is one row, and this is the
// index in the plane.
template <typename Kernel>
__device__ __forceinline__ int32_t column_of(const Kernel& kernel, int32_t row) {
  return kernel.first_column() + (kernel.layout.flat ? row * kernel.layout.w.out : 0);
}
// Distance in elements of that column from the start of its copy.
template <typename Kernel>
__device__ __forceinline__ int32_t lead(int32_t column) {
  return column & ((Kernel::kBoxes ? 32 : 16) / Kernel::kElement - 1);
}

template <typename Kernel>
class RowSource {
  static constexpr int kTaps = Kernel::kTaps, kColumns = Kernel::kColumns;

 public:
  __device__ __forceinline__ RowSource(const Kernel& kernel, const Part& part)
      : kernel_(kernel),
        layout_(kernel.layout),
        part_(part),
        plane_(layout_.co_parts * layout_.co_rows * layout_.gy_pitch),
        own_column_(part.kw * kTaps * layout_.w.dilation),
        column_(lead<Kernel>(column_of(kernel, 0)) + own_column_),
        taps_(layout_.w.stride, layout_.w.dilation, layout_.gy_rows * plane_, layout_.gy_pitch, threadIdx.x % 32) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    s_first_ = kernel.s_stages + layout_.x_bytes + part.kh * layout_.kernel_rows * plane_ +
               (part.co + lane / 4) * (Kernel::kBoxes ? 128 : layout_.gy_pitch);
    first_bytes_ = lane % 4 * 4 * layout_.w.stride;
  }

  __device__ __forceinline__ void wait(const pipeline::Ring& ring) const { ring.wait_full(); }

  __device__ __forceinline__ void begin_unit(int32_t slot, int32_t unit) {
    const uint32_t offset = slot * layout_.stage_bytes;
    s_row_ = s_first_ + offset;
    columns_ = ptx::MatrixDescriptor::of_rows(kernel_.s_stages + offset, 128);
    if (layout_.flat) {
      const int32_t first = unit / layout_.strips % layout_.row_units * layout_.rows;
      gy_row_ = first * layout_.h.stride + layout_.planes.after_row(first) + kernel_.first_row() +
                part_.kh * layout_.h.dilation;
    }
    begin_row();
  }

  __device__ __forceinline__ void next_row() {
    s_row_ += layout_.position_rows * plane_;
    columns_ = columns_.moved(8 * kColumns);
    gy_row_ += layout_.h.stride;
    begin_row();
  }

  __device__ __forceinline__ void load(uint32_t (&fragments)[kTaps][4], int32_t) {
    taps_.load(fragments, s_row_, bytes_, column_);
    bytes_ += 32 * layout_.w.stride;
  }

  __device__ __forceinline__ ptx::MatrixDescriptor columns(int32_t step) const {
    return columns_.moved(step / 4 * layout_.rows * (8 * kColumns) + step % 4 * 2);
  }

 private:
  __device__ __forceinline__ void begin_row() {
    if (layout_.flat) column_ = lead<Kernel>(column_of(kernel_, gy_row_)) + own_column_;
    bytes_ = first_bytes_ + taps_.begin(column_);
  }

  const Kernel& kernel_;
  const CorrelateLayout& layout_;
  const Part part_;
  const int32_t plane_;  // bytes between rows
  const int32_t own_column_;
  int32_t column_;  // stage column of the part's first tap. Strips are multiples of 16 bytes apart.
  const Taps<typename Kernel::Element, kTaps, Kernel::kStride, Kernel::kBoxes> taps_;
  uint32_t s_first_, s_row_ = 0;
  int32_t first_bytes_, bytes_ = 0;  // offset of the thread's first pixel
  int32_t gy_row_ = 0;
  ptx::MatrixDescriptor columns_{};
};

#endif

template <typename ElementValue, int kTaps, int kColumns, int kConsumers, int kStrideValue, bool kBoxesValue>
struct OfRows : Weights<kTaps, kColumns, kConsumers> {
  using Base = Weights<kTaps, kColumns, kConsumers>;
  using Element = ElementValue;
  using typename Base::Params;
  static constexpr int kStride = kStrideValue;
  static constexpr bool kBoxes = kBoxesValue;

#ifdef CONVT_HAS_WGMMA
  static constexpr int32_t kElement = static_cast<int32_t>(sizeof(Element));
  using Base::Base, Base::layout, Base::params, Base::s_stages;

  __device__ __forceinline__ void run_producer(int32_t warp) const {
    if (warp != 0 || !ptx::elect_one()) return;
    pipeline::Ring ring = this->ring();
    const int32_t first_co = this->group * layout.gy_group + this->co;
    const int32_t first_ci = this->group * layout.x_group + this->ci;
    constexpr int32_t kBox = 128 / kElement;
    const int32_t x_box_bytes = layout.rows * kColumns * 128,
                  plane = layout.co_parts * layout.co_rows * layout.gy_pitch;
#pragma unroll 1
    for (int32_t number = this->first_unit; number < this->end_unit; ++number) {
      const Unit unit(layout, number);
      const uint32_t s_stage = s_stages + ring.slot() * layout.stage_bytes;
      ring.wait_empty();
      ptx::mbarrier_expect(ring.full(), layout.copied_bytes);
      const int32_t gy_row = unit.row * layout.h.stride + layout.planes.after_row(unit.row) + this->first_row();
      const int32_t copies = layout.flat ? layout.gy_rows : 1;  // a box contains all rows, unless `flat`
      for (int32_t i = 0; i < copies; ++i) {
        const int32_t first = column_of(*this, gy_row + i * layout.gy_row_step);
        const int32_t at = unit.column * layout.w.stride + first - lead<OfRows>(first);
        for (int32_t box = 0; box < layout.gy_boxes; ++box) {
          const int32_t of_gy[4] = {at + box * kBox, first_co, layout.flat ? 0 : gy_row, unit.image};
          ptx::tensor_copy(s_stage + layout.x_bytes + (box * layout.gy_rows + i) * plane, &params.gy, of_gy,
                           ring.full());
        }
      }
      for (int32_t box = 0; box < layout.boxes; ++box) {
        const int32_t of_x[4] = {unit.column + box * kBox, first_ci, unit.row, unit.image};
        ptx::tensor_copy(s_stage + box * x_box_bytes, &params.x, of_x, ring.full());
      }
      ring.advance();
    }
  }

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    multiply_registers<RowSource<OfRows>>(*this, warp);
  }
#endif
};

}  // namespace convt::correlate_sm90a
