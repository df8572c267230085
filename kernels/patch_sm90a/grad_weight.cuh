// The gradient of the weight of layers whose kernel is their stride, in NCHW:
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, h, w) of x[n, ci, h, w] * gy[n, co, h * KH + kh, w * KW +
//     kw]
// One CTA an SM has one tile of weights and one chunk of pixels: two warpgroups multiply, one thread copies boxes of
// both operands by tensor map. grad_output goes through registers, where the taps of a pixel part; the input's pixels
// are K of the second operand as they lie in memory. Units are added in their order. patch_sm90a/grad_weight_layout.h
// says what lies where. Called by launch/. Must not know: torch, how the plan was chosen, how slabs are added.
#pragma once

#include "element/registers.cuh"
#include "hopper/kernel.cuh"
#include "patch_sm90a/grad_weight_params.h"
#include "patch_sm90a/instances.h"
#include "pipeline/ring.cuh"
#include "plan/kernel_table.h"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// What of the weights a CTA has, and which units it adds up.
struct WeightPass {
  int32_t group, co, ci, kh;  // the first ones
  int32_t chunk, unit, end_unit;

  __device__ __forceinline__ explicit WeightPass(const PatchGradWeightLayout& layout, int32_t columns) {
    int32_t rest = static_cast<int32_t>(blockIdx.x);
    auto digit = [&rest](int32_t count) {
      const int32_t quotient = rest / count, value = rest - quotient * count;
      rest = quotient;
      return value;
    };
    co = digit(layout.co_tiles) * kPatchWeightRows;
    ci = digit(layout.ci_tiles) * layout.ci_parts * columns;
    kh = digit(layout.kh_tiles) * layout.kh_parts;
    group = digit(layout.passes / (layout.co_tiles * layout.ci_tiles * layout.kh_tiles));
    chunk = rest;
    unit = chunk * layout.units_per_chunk;
    end_unit = min(unit + layout.units_per_chunk, layout.num_units);
  }
};

// A step's elements of grad_output of a thread: both rows of its first pixels, then of its second ones, with all taps
// of the row.
template <int kTaps>
using StepWords = uint32_t[4][kTaps];

template <int kTaps>
__device__ __forceinline__ void load_step(StepWords<kTaps>& words, uint32_t s_first, int32_t pitch) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ptx::load_shared(words[i], s_first + i % 2 * 8 * pitch + i / 2 * 16 * kTaps);
  }
}

// Of one tap: in half precision a word has two neighbouring taps of a pixel, a fragment two neighbouring pixels.
template <typename Element, int kTaps>
__device__ __forceinline__ void write_tap(uint32_t (&fragment)[4], const StepWords<kTaps>& words, int tap) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(Element) == 4) {
      ptx::write_fragment_tf32(fragment[i], words[i][tap]);
    } else {
      ptx::write_fragment_halves(fragment[i], words[i][tap / 2], words[i][kTaps / 2 + tap / 2], tap % 2 == 1);
    }
  }
}

#endif

template <typename ElementValue, int kTapsValue, int kColumnsValue>
struct GradWeight {
  using Params = GradWeightParams;
  using Element = ElementValue;
  static constexpr int kTaps = kTapsValue;  // of a row
  static constexpr int kColumns = kColumnsValue;  // input channels of a warpgroup
  // Registers: 2 * 232 + 40 = 3 * 168.
  static constexpr hopper::Roles kRoles{kPatchWeightThreads, 1, kPatchWeightConsumers, 232, 40};

#ifdef CONVT_HAS_WGMMA
  const Params& params;
  const PatchGradWeightLayout& layout;
  const uint32_t s_stages;
  const WeightPass pass;

  __device__ __forceinline__ GradWeight(const Params& params, const unsigned char* s_bytes)
      : params(params), layout(params.layout), s_stages(ptx::shared_address(s_bytes)), pass(params.layout, kColumns) {}

  __device__ __forceinline__ pipeline::Ring ring() const { return {s_stages + layout.barriers_begin, layout.slots}; }

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x == 0) {
      pipeline::init_slots(s_stages + layout.barriers_begin, 0, layout.slots, 1, 4 * kPatchWeightConsumers);
      ptx::fence_mbarrier_init();
    }
  }

  __device__ __forceinline__ void take_part() const {}

  __device__ __forceinline__ void serve(int32_t warp) const {
    if (warp != 0 || !ptx::elect_one()) return;
    constexpr int32_t kBoxPixels = 128 / static_cast<int32_t>(sizeof(Element)), kBoxBytes = 128 * kColumns;
    pipeline::Ring ring = this->ring();
    const int32_t first_co = pass.group * layout.group_co + pass.co;
    const int32_t first_ci = pass.group * layout.group_ci + pass.ci;
#pragma unroll 1
    for (int32_t unit = pass.unit; unit < pass.end_unit; ++unit) {
      const int32_t rest = unit / layout.strips, strip = unit - rest * layout.strips;
      const int32_t image = rest / layout.row_units, row = (rest - image * layout.row_units) * layout.rows;
      // Of whole rows `pixels` is a unit's share of the image, and there is one strip.
      const int32_t first_pixel = layout.whole_rows ? row / layout.rows * layout.pixels : strip * layout.pixels;
      const uint32_t s_stage = s_stages + ring.slot() * layout.stage_bytes;
      ring.wait_empty();
      ptx::mbarrier_expect(
          ring.full(), layout.ci_parts * layout.boxes * kBoxBytes + layout.kh_parts * kPatchWeightRows * layout.pitch);
      for (int32_t part = 0; part < layout.kh_parts; ++part) {
        const int32_t at[5] = {strip * layout.pixels * kTaps, pass.kh + part, row, first_co, image};
        ptx::tensor_copy(s_stage + layout.gy_begin + part * kPatchWeightRows * layout.pitch, &params.gy, at,
                         ring.full());
      }
      uint32_t s_box = s_stage;
      for (int32_t part = 0; part < layout.ci_parts; ++part) {
        for (int32_t box = 0; box < layout.boxes; ++box, s_box += kBoxBytes) {
          const int32_t at[4] = {first_pixel + box * kBoxPixels, layout.whole_rows ? 0 : row,
                                 first_ci + part * kColumns, image};
          ptx::tensor_copy(s_box, &params.x, at, ring.full());
        }
      }
      ring.advance();
    }
  }

  __device__ __forceinline__ void consume(int32_t warp) const {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, part = warp / 4;
    const int32_t ci_part = part % layout.ci_parts, kh_part = part / layout.ci_parts;
    const int32_t row = warp % 4 * 16 + lane / 4;
    const uint32_t s_rows =
        s_stages + layout.gy_begin + (kh_part * kPatchWeightRows + row) * layout.pitch + lane % 4 * 4 * kTaps;
    const uint32_t s_columns = s_stages + ci_part * layout.boxes * 128 * kColumns;
    pipeline::Ring ring = this->ring();
    float acc[kTaps][kColumns / 2];
    uint32_t fragments[2][kTaps][4];
    element::clear(acc);
    uint32_t used = 0, s_step = 0;  // used: the barrier of the stage whose products may be in flight
    ptx::MatrixDescriptor columns{};
    int32_t step = layout.steps;  // of the stage, the next one
    // Of the thread's two output channels, where the warp adds up what it reads of grad_output, for the bias.
    const bool adds_up = params.bias_slabs != nullptr && pass.ci == 0 && ci_part == 0;
    float sums[2] = {};
    const auto multiply = [&](uint32_t (&of_step)[kTaps][4]) {
      if (step == layout.steps) {
        if (s_step != 0) {
          used = ring.empty();
          ring.advance();
        }
        ring.wait_full();
        const uint32_t offset = ring.slot() * layout.stage_bytes;
        s_step = s_rows + offset;
        columns = ptx::MatrixDescriptor::of_rows(s_columns + offset, 128);
        step = 0;
      }
      ptx::wgmma_wait<1>();  // the products of these registers' last fragments are done
      element::keep(of_step);
      StepWords<kTaps> words;
      load_step<kTaps>(words, s_step, layout.pitch);
      if (adds_up) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int k = 0; k < kTaps; ++k) sums[i % 2] = element::add_word<Element>(sums[i % 2], words[i][k]);
        }
      }
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) write_tap<Element, kTaps>(of_step[tap], words, tap);
      const auto b = columns.moved(step / 4 * (8 * kColumns) + step % 4 * 2);
      ptx::wgmma_fence();
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) ptx::wgmma<Element>(acc[tap], of_step[tap], b, true);
      ptx::wgmma_commit();
      if (step == 1 && used != 0) pipeline::release(used);
      s_step += 32 * kTaps;
      ++step;
    };
    int32_t left = (pass.end_unit - pass.unit) * layout.steps;
#pragma unroll 1
    for (; left > 1; left -= 2) {
      multiply(fragments[0]);
      multiply(fragments[1]);
    }
    if (left > 0) multiply(fragments[0]);
    ptx::wgmma_wait<0>();
    element::keep(fragments);
    element::keep(acc);
    ptx::let_next_kernel_begin();  // which adds the slabs, and waits for them
    store(acc, pass.co + row, pass.ci + ci_part * kColumns, pass.kh + kh_part);
    if (adds_up) store_bias(sums, pass.co + row, pass.kh + kh_part);
  }

  // Four lanes have other pixels of a channel.
  __device__ __forceinline__ void store_bias(const float (&sums)[2], int32_t first_co, int32_t kh) const {
    const int64_t channels = int64_t{layout.channels / layout.group_ci} * layout.group_co;
    float* g_sums = params.bias_slabs + (int64_t{pass.chunk} * layout.kernel_h + kh) * channels +
                    int64_t{pass.group} * layout.group_co;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = element::add(sums[half], __shfl_xor_sync(0xffffffffu, sums[half], 1));
      sum = element::add(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
      const int32_t co = first_co + 8 * half;
      if (threadIdx.x % 4 == 0 && kh < layout.kernel_h && co < layout.group_co) g_sums[co] = sum;
    }
  }

  // A thread has all taps of a row, which are neighbours in the weight.
  __device__ __forceinline__ void store(const float (&acc)[kTaps][kColumns / 2], int32_t first_co, int32_t first_ci,
                                        int32_t kh) const {
    if (kh >= layout.kernel_h) return;
    first_ci += static_cast<int32_t>(threadIdx.x) % 4 * 2;
    const int32_t row = layout.kernel_h * kTaps;  // of the slab, to the next output channel
    float* g_first =
        params.slabs +
        (int64_t{pass.chunk} * layout.channels + pass.group * layout.group_ci + first_ci) * layout.group_co * row +
        int64_t{first_co} * row + kh * kTaps;
#pragma unroll
    for (int block = 0; block < kColumns / 8; ++block) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (first_ci + 8 * block + i >= layout.group_ci) continue;
        float* g_channel = g_first + int64_t{8 * block + i} * layout.group_co * row;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (first_co + 8 * half >= layout.group_co) continue;
          float* g_taps = g_channel + 8 * half * row;
          const int sum = 4 * block + 2 * half + i;
          if constexpr (kTaps == 4) {
            *reinterpret_cast<float4*>(g_taps) = make_float4(acc[0][sum], acc[1][sum], acc[2][sum], acc[3][sum]);
          } else {
            *reinterpret_cast<float2*>(g_taps) = make_float2(acc[0][sum], acc[1][sum]);
          }
        }
      }
    }
  }
#endif
};

}  // namespace convt::patch_sm90a

#define CONVT_PATCH_WEIGHT_INSTANCE(symbol, dtype, precision, kernel_w, columns) \
  CONVT_DEFINE_KERNEL(patch_sm90a, symbol,                                       \
                      hopper::convolve<GradWeight<element::ElementOf<DataType::dtype>::type, kernel_w, columns>>)
