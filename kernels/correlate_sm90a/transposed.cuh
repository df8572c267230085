// Gradient of the weight in float32 and channels_last; pixels.cuh is the counterpart for half precision. wgmma cannot
// transpose TF32 operands. Producer warps therefore transpose the input in shared memory, so that rows run along K.
// grad_output is in registers, in any pixel order. Within eight pixels, K has the order {0, 2, 4, 6, 1, 3, 5, 7}, so
// that the four pixels of a read are in different banks.
// Called by launch/. Must not know: torch, how the plan was chosen, how slabs are added.
#pragma once

#include "correlate_sm90a/pixel_boxes.cuh"
#include "correlate_sm90a/registers.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/operand_layout.cuh"
#include "ptx/shared.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

inline constexpr int32_t kTransposingWarps = 3;

// A second ring over the same slots, whose full barriers signal that the pixels are transposed.
__device__ __forceinline__ pipeline::Ring transposed_ring(const CorrelateLayout& layout, uint32_t s_stages) {
  return {s_stages + layout.barriers_begin + 16 * layout.slots, layout.slots};
}

template <typename Kernel>
class TransposedSource {
  static constexpr int kTaps = Kernel::kTaps, kColumns = Kernel::kColumns;

 public:
  __device__ __forceinline__ TransposedSource(const Kernel& kernel, const Part& part)
      : kernel_(kernel), layout_(kernel.layout), transposed_(transposed_ring(layout_, kernel.s_stages)) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    // A box contains 32 channels. A warp reads 16 of them: each thread reads two channels, 32 bytes apart.
    const int32_t box = part.co / 32 * layout_.gy_boxes;
    s_first_ = kernel.s_stages + layout_.x_bytes + box * layout_.gy_box_bytes + lane / 4 % 4 * 4;
    vector_ = part.co / 4 % 8 + lane / 16;
    first_row_ = part.kh * layout_.kernel_rows * layout_.gy_box_columns + lane % 4 * 2;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const BoxedTap boxed(layout_, part.kw * kTaps + tap);
      taps_[tap] = boxed.box * layout_.gy_box_bytes + boxed.shift;
    }
  }

  __device__ __forceinline__ void wait(const pipeline::Ring& ring) {
    ring.wait_full();
    transposed_.wait_full();
    transposed_.advance();
  }

  __device__ __forceinline__ void begin_unit(int32_t slot, int32_t) {
    stage_ = slot * layout_.stage_bytes;
    columns_ = ptx::MatrixDescriptor::of_rows(kernel_.s_stages + stage_ + layout_.transposed_begin, 128);
    first_step_ = 0;
    row_ = first_row_;
    begin_row();
  }

  __device__ __forceinline__ void next_row() {
    row_ += layout_.position_rows * layout_.gy_box_columns;
    first_step_ += layout_.steps;
    begin_row();
  }

  __device__ __forceinline__ void load(uint32_t (&fragments)[kTaps][4], int32_t step) const {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
      for (int pixel = 0; pixel < 2; ++pixel) {
        const uint32_t s_word = s_pixels_[tap][pixel] + step * (8 * 128);
        fragments[tap][2 * pixel] = ptx::load_shared(s_word);
        fragments[tap][2 * pixel + 1] = ptx::load_shared(s_word ^ 32);
      }
    }
  }

  __device__ __forceinline__ ptx::MatrixDescriptor columns(int32_t step) const {
    const int32_t number = first_step_ + step;
    return columns_.moved(number / 4 * (8 * kColumns) + number % 4 * 2);
  }

 private:
  __device__ __forceinline__ void begin_row() {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
      for (int pixel = 0; pixel < 2; ++pixel) {
        const uint32_t row = row_ + taps_[tap] % 1024 + pixel, box = taps_[tap] / 1024 * 1024;
        s_pixels_[tap][pixel] = s_first_ + stage_ + box + row * 128 + ptx::tensor_swizzle(128, row, vector_) * 16;
      }
    }
  }

  const Kernel& kernel_;
  const CorrelateLayout& layout_;
  pipeline::Ring transposed_;
  uint32_t s_first_, stage_ = 0;
  int32_t vector_;  // index of the 16-byte vector that contains the thread's channel
  int32_t first_row_, row_ = 0;  // pixel in a box
  int32_t first_step_ = 0;
  uint32_t taps_[kTaps];  // byte offset of the tap's box, a multiple of 1024, plus its shift in pixels
  uint32_t s_pixels_[kTaps][2] = {};
  ptx::MatrixDescriptor columns_{};
};

#endif

template <int kTaps, int kColumns, int kConsumers>
struct OfTransposedPixels : Weights<kTaps, kColumns, kConsumers> {
  using Base = Weights<kTaps, kColumns, kConsumers>;
  using Element = float;
  using typename Base::Params;

#ifdef CONVT_HAS_WGMMA
  using Base::Base, Base::layout, Base::s_stages;

  __device__ __forceinline__ void init_barriers() const {
    Base::init_barriers();
    if (threadIdx.x == 0) {
      pipeline::init_slots(transposed_ring(layout, s_stages).full(), 0, layout.slots, kTransposingWarps, 1);
      ptx::fence_mbarrier_init();
    }
  }

  __device__ __forceinline__ void run_producer(int32_t warp) const {
    if (warp == 0) {
      load_pixel_boxes<32>(*this);
    } else {
      transpose(warp - 1);
    }
  }

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    multiply_registers<TransposedSource<OfTransposedPixels>>(*this, warp);
  }

 private:
  // A warp transposes 32 channels, one per lane, of eight pixels per iteration, or of sixteen if registers suffice.
  static constexpr int kTogether = kConsumers == 3 ? 1 : 2;

  __device__ __forceinline__ void transpose(int32_t warp) const {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t steps = layout.rows * layout.steps, of_block = (steps + kTogether - 1) / kTogether;
    pipeline::Ring ring = this->ring(), transposed = transposed_ring(layout, s_stages);
#pragma unroll 1
    for (int32_t number = this->first_unit; number < this->end_unit; ++number) {
      const uint32_t s_x = s_stages + ring.slot() * layout.stage_bytes, s_transposed = s_x + layout.transposed_begin;
      ring.wait_full();
      int32_t block = warp / of_block, first = (warp - block * of_block) * kTogether;
#pragma unroll 1
      while (block < kColumns / 32) {
        const uint32_t s_pixels = (s_x + (block * steps + first) * (8 * 128) + lane % 4 * 4) | lane / 4 * 16;
        uint32_t words[kTogether][2][4];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
#pragma unroll
          for (int pixel = 0; pixel < 8; ++pixel) {
            const uint32_t s_word = (s_pixels ^ pixel * 16) + (8 * i + pixel) * 128;
            words[i][pixel % 2][pixel / 2] = ptx::load_shared_or_zero(s_word, i == 0 || first + i < steps);
          }
        }
        const int32_t row = block * 32 + lane;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int32_t step = first + i;
          const uint32_t s_row = s_transposed + (step / 4 * kColumns + row) * 128;
          if (step >= steps) break;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            ptx::store_shared(s_row + ptx::tensor_swizzle(128, row, step % 4 * 2 + half) * 16, words[i][half]);
          }
        }
        for (first += kTransposingWarps * kTogether; first >= of_block * kTogether; first -= of_block * kTogether)
          ++block;
      }
      ptx::fence_proxy_async();
      pipeline::release(transposed.full());
      ring.advance();
      transposed.advance();
    }
  }
#endif
};

}  // namespace convt::correlate_sm90a
