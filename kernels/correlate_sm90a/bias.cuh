// Gradient of the bias, summed from the operands of the products. bias_taps x stride_w adjacent taps read each element
// of grad_output once. Each CTA sums over its taps among these, and stores rows of partial sums of its chunk. Called
// by: registers.cuh, pixels.cuh. Must not know: the layout of a stage.
#pragma once

#include "correlate_sm90a/weights.cuh"
#include "element/arithmetic.cuh"
#include "element/operand.cuh"
#include "element/registers.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// Bit mask of the warp's taps over which it sums; 0 if the gradient of the bias is not requested.
template <typename Kernel>
__device__ __forceinline__ uint32_t counted_taps(const Kernel& kernel, const Part& part) {
  const CorrelateLayout& layout = kernel.layout;
  const int32_t kh = kernel.kh + part.kh - layout.bias_kh, kw = kernel.kw + part.kw * Kernel::kTaps - layout.bias_kw;
  const bool takes_turns = kernel.ci < layout.bias_turns * Kernel::kColumns;
  if (kernel.params.bias_slabs == nullptr || !takes_turns || kh < 0 || kh >= layout.bias_taps) return 0;
  uint32_t counted = 0;
#pragma unroll
  for (int tap = 0; tap < Kernel::kTaps; ++tap) {
    if (kw + tap >= 0 && kw + tap < layout.w.stride) counted |= 1u << tap;
  }
  return counted;
}

// Stores the sums of the thread's two output channels. `turn` is the CTA's index among CTAs with the same taps.
template <typename Kernel>
__device__ __forceinline__ void store_bias(const Kernel& kernel, const Part& part, int32_t turn, float first,
                                           float second) {
  const CorrelateLayout& layout = kernel.layout;
  const int32_t run = kernel.kw / Kernel::kTaps + part.kw - layout.bias_kw / Kernel::kTaps;
  const int32_t tap = (kernel.kh + part.kh - layout.bias_kh) * layout.bias_runs + run;
  const int64_t channels = int64_t{layout.channels / layout.group_ci} * layout.group_co;
  const int64_t row = int64_t{kernel.chunk} * layout.bias_rows + tap * layout.bias_turns + turn;
  float* g_sums = kernel.params.bias_slabs + row * channels + int64_t{kernel.group} * layout.group_co;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, co = kernel.co + part.co + lane / 4;
  const bool adds = kernel.params.adds;
  if (lane % 4 != 0) return;  // four lanes hold the same sums
  if (co < layout.group_co) g_sums[co] = adds ? g_sums[co] + first : first;
  if (co + 8 < layout.group_co) g_sums[co + 8] = adds ? g_sums[co + 8] + second : second;
}

// Sums operand A in registers. Only CTAs of the first input channels do this.
template <typename Kernel>
class BiasOfFragments {
  using Element = typename Kernel::Element;
  using Fragments = uint32_t[Kernel::kTaps][4];

 public:
  const bool is_asked;  // the same for all warps

  __device__ __forceinline__ BiasOfFragments(const Kernel& kernel, const Part& part)
      : is_asked(Kernel::kTaps <= kCorrelateMostBiasTaps && kernel.params.bias_slabs != nullptr),
        kernel_(kernel),
        part_(part),
        counted_(is_asked ? counted_taps(kernel, part) : 0) {}

  // Adds the fragments, then rounds float32 to TF32. Without a gradient of the bias, TMA copies round instead.
  __device__ __forceinline__ void take(Fragments& fragments) {
#pragma unroll
    for (int tap = 0; tap < Kernel::kTaps; ++tap) {
      if ((counted_ >> tap & 1) != 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[i % 2] = element::add_word<Element>(sums_[i % 2], fragments[tap][i]);
      }
      if constexpr (sizeof(Element) == 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) ptx::write_fragment_tf32(fragments[tap][i], fragments[tap][i]);
      }
    }
  }

  __device__ __forceinline__ void store() const {
    if (counted_ == 0) return;
    const auto of_row = [](float sum) {  // four lanes hold different pixels of a row
      sum = element::add(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
      return element::add(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
    };
    store_bias(kernel_, part_, 0, of_row(sums_[0]), of_row(sums_[1]));
  }

 private:
  const Kernel& kernel_;
  const Part part_;
  const uint32_t counted_;
  float sums_[2] = {};
};

// Sums operand A in shared memory by multiplying it by ones. CTAs with the same pixels and different input channels
// alternate.
template <typename Kernel>
class BiasOfOnes {
 public:
  __device__ __forceinline__ BiasOfOnes(const Kernel& kernel, int32_t warp)
      : kernel_(kernel),
        ones_(ptx::MatrixDescriptor::of_transposed_rows(kernel.s_stages + kernel.layout.ones_begin, 32, 0, 0)),
        turn_(kernel.ci / Kernel::kColumns) {
    const int32_t parts = kCorrelateRows / kernel.layout.co_rows;  // parts per wgmma
    for (int32_t part = 0; part < parts; ++part) {
      counted_ |= counted_taps(kernel, Part(kernel.layout, warp / 4 * 4 + part * (4 / parts)));
    }
    element::clear(sums_);
  }

  __device__ __forceinline__ bool counts(int32_t unit) const {
    return counted_ != 0 && unit % kernel_.layout.bias_turns == turn_;
  }

  __device__ __forceinline__ void multiply(int tap, const ptx::MatrixDescriptor& pixels) {
    if ((counted_ >> tap & 1) != 0) ptx::wgmma_transposed<typename Kernel::Element>(sums_, pixels, ones_, true);
  }

  // Call after the last product. All eight columns are equal.
  __device__ __forceinline__ void store(const Part& part) {
    element::fence_registers(sums_);
    if (counted_taps(kernel_, part) != 0) store_bias(kernel_, part, turn_, sums_[0], sums_[2]);
  }

 private:
  const Kernel& kernel_;
  const ptx::MatrixDescriptor ones_;
  const int32_t turn_;
  uint32_t counted_ = 0;  // over all parts
  float sums_[4];
};

#endif

}  // namespace convt::correlate_sm90a
