// The gradient of the weight on warpgroup products:
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, h, w) of
//         x[n, ci, h, w] * gy[n, co, h * stride_h - padding_h + kh * dilation_h, w * stride_w - padding_w + kw * ...]
// A CTA has one tile of weights and one chunk of pixels: warpgroups multiply, one thread copies boxes of both operands
// by tensor map, with zeros for what is outside of an image. Units are added in their order. correlate_sm90a/layout.h
// says what lies where. Called by launch/. Must not know: torch, how the plan was chosen, how slabs are added.
#pragma once

#include "correlate_sm90a/instances.h"
#include "correlate_sm90a/params.h"
#include "correlate_sm90a/taps.cuh"
#include "element/registers.cuh"
#include "hopper/kernel.cuh"
#include "pipeline/ring.cuh"
#include "plan/kernel_table.h"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// What of the weights a CTA has, and which units it adds up.
struct Pass {
  int32_t group, co, ci, kh, kw;  // the first ones
  int32_t chunk, unit, end_unit;

  __device__ __forceinline__ Pass(const CorrelateLayout& layout, int32_t taps, int32_t columns) {
    int32_t rest = static_cast<int32_t>(blockIdx.x);
    auto digit = [&rest](int32_t count) {
      const int32_t quotient = rest / count, value = rest - quotient * count;
      rest = quotient;
      return value;
    };
    co = digit(layout.co_tiles) * layout.co_parts * kCorrelateRows;
    ci = digit(layout.ci_tiles) * columns;
    kw = digit(layout.kw_tiles) * layout.kw_parts * taps;
    kh = digit(layout.kh_tiles) * layout.kh_parts;
    group = digit(layout.channels / layout.group_ci);
    chunk = rest;
    unit = chunk * layout.units_per_chunk;
    end_unit = min(unit + layout.units_per_chunk, layout.num_units);
  }
};

#endif

template <typename ElementValue, int kTapsValue, int kColumnsValue, int kConsumersValue, int kStrideValue,
          bool kBoxesValue>
struct Correlate {
  using Params = correlate_sm90a::Params;
  using Element = ElementValue;
  static constexpr int kTaps = kTapsValue;  // of a warpgroup
  static constexpr int kColumns = kColumnsValue;
  static constexpr int kConsumers = kConsumersValue;
  static constexpr int kStride = kStrideValue;
  static constexpr bool kBoxes = kBoxesValue;
  // Registers: 2 * 232 + 40 = 3 * 168, and 3 * 160 + 24 = 504 of 512.
  static constexpr hopper::Roles kRoles{correlate_threads(kConsumers), 1, kConsumers, kConsumers == 3 ? 160 : 232,
                                        kConsumers == 3 ? 24 : 40};

#ifdef CONVT_HAS_WGMMA
  static constexpr int32_t kElement = static_cast<int32_t>(sizeof(Element)), kVector = (kBoxes ? 32 : 16) / kElement;
  const Params& params;
  const CorrelateLayout& layout;
  const uint32_t s_stages;
  const Pass pass;

  __device__ __forceinline__ Correlate(const Params& params, const unsigned char* s_bytes)
      : params(params),
        layout(params.layout),
        s_stages(ptx::shared_address(s_bytes)),
        pass(params.layout, kTaps, kColumns) {}

  __device__ __forceinline__ pipeline::Ring ring() const { return {s_stages + layout.barriers_begin, layout.slots}; }

  // Of grad_output, the row and the column that the first tap reads for a pixel of row 0 and column 0. A copy begins on
  // 16 bytes, and is faster on 32: where rows do not, they follow each other in a plane of one row, of which the column
  // is the place.
  __device__ __forceinline__ int32_t first_row() const { return pass.kh * layout.h.dilation - layout.h.padding; }
  __device__ __forceinline__ int32_t first_column(int32_t row) const {
    return pass.kw * layout.w.dilation - layout.w.padding + (layout.flat ? row * layout.w.out : 0);
  }
  __device__ __forceinline__ static int32_t lead(int32_t column) { return column & (kVector - 1); }

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x == 0) {
      pipeline::init_slots(s_stages + layout.barriers_begin, 0, layout.slots, 1, 4 * kConsumers);
      ptx::fence_mbarrier_init();
    }
  }

  __device__ __forceinline__ void take_part() const {}

  __device__ __forceinline__ void serve(int32_t warp) const {
    if (warp != 0 || !ptx::elect_one()) return;
    pipeline::Ring ring = this->ring();
    const int32_t first_co = pass.group * layout.group_co + pass.co;
    const int32_t first_ci = pass.group * layout.group_ci + pass.ci;
    constexpr int32_t kBox = 128 / kElement;
    const int32_t x_box_bytes = layout.rows * kColumns * 128,
                  plane = layout.co_parts * kCorrelateRows * layout.gy_pitch;
#pragma unroll 1
    for (int32_t unit = pass.unit; unit < pass.end_unit; ++unit) {
      const int32_t rest = unit / layout.strips, strip = unit - rest * layout.strips;
      const int32_t image = rest / layout.row_units, row = (rest - image * layout.row_units) * layout.rows;
      const int32_t column = strip * layout.pixels;
      const uint32_t s_stage = s_stages + ring.slot() * layout.stage_bytes;
      ring.wait_empty();
      ptx::mbarrier_expect(ring.full(), layout.x_bytes + layout.gy_bytes);
      const int32_t gy_row = row * layout.h.stride + first_row();
      const int32_t copies = layout.flat ? layout.gy_rows : 1;  // of rows that one box has, or has not
      for (int32_t i = 0; i < copies; ++i) {
        const int32_t first = first_column(gy_row + i * layout.gy_row_step);
        const int32_t at = column * layout.w.stride + first - lead(first);
        for (int32_t box = 0; box < layout.gy_boxes; ++box) {
          const int32_t of_gy[4] = {at + box * kBox, first_co, layout.flat ? 0 : gy_row, image};
          ptx::tensor_copy(s_stage + layout.x_bytes + (box * layout.gy_rows + i) * plane, &params.gy, of_gy,
                           ring.full());
        }
      }
      for (int32_t box = 0; box < layout.boxes; ++box) {
        const int32_t of_x[4] = {column + box * kBox, first_ci, row, image};
        ptx::tensor_copy(s_stage + box * x_box_bytes, &params.x, of_x, ring.full());
      }
      ring.advance();
    }
  }

  __device__ __forceinline__ void consume(int32_t warp) const {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t part = warp / 4;
    const int32_t co_part = part % layout.co_parts, rest = part / layout.co_parts;
    const int32_t kw_part = rest % layout.kw_parts, kh_part = rest / layout.kw_parts;
    const int32_t row = co_part * kCorrelateRows + warp % 4 * 16 + lane / 4;
    const int32_t plane = layout.co_parts * kCorrelateRows * layout.gy_pitch;
    const int32_t own_column = kw_part * kTaps * layout.w.dilation;
    // Of a row of the stage. Columns of strips are multiples of 16 bytes apart.
    int32_t column = lead(first_column(0)) + own_column;
    const Taps<Element, kTaps, kStride, kBoxes> taps(layout.w.stride, layout.w.dilation, layout.gy_rows * plane,
                                                     layout.gy_pitch, lane);
    const uint32_t s_first =
        s_stages + layout.x_bytes + kh_part * layout.kernel_rows * plane + row * (kBoxes ? 128 : layout.gy_pitch);
    const int32_t first_bytes = lane % 4 * 4 * layout.w.stride;  // to the thread's first pixel
    pipeline::Ring ring = this->ring();
    float acc[kTaps][kColumns / 2];
    uint32_t fragments[2][kTaps][4];
    element::clear(acc);
    uint32_t used = 0;  // the barrier of the stage whose last products may be in flight
    uint32_t s_row = 0;
    int32_t bytes = 0;
    ptx::MatrixDescriptor row_columns{};  // of the unit's row
    int32_t step = layout.steps, unit_row = layout.rows, unit = pass.unit;  // the next ones
    int32_t gy_row = 0;
    const auto multiply = [&](uint32_t (&of_step)[kTaps][4]) {
      const uint32_t left = used;
      if (step == layout.steps) {
        step = 0;
        if (++unit_row >= layout.rows) {
          if (s_row != 0) {
            used = ring.empty();
            ring.advance();
          }
          ring.wait_full();
          const uint32_t offset = ring.slot() * layout.stage_bytes;
          s_row = s_first + offset;
          row_columns = ptx::MatrixDescriptor::of_rows(s_stages + offset, 128);
          unit_row = 0;
          if (layout.flat) {
            const int32_t first = unit / layout.strips % layout.row_units * layout.rows;
            gy_row = first * layout.h.stride + first_row() + kh_part * layout.h.dilation;
            ++unit;
          }
        } else {
          s_row += layout.position_rows * plane;
          row_columns = row_columns.moved(8 * kColumns);
          gy_row += layout.h.stride;
        }
        if (layout.flat) column = lead(first_column(gy_row)) + own_column;
        bytes = first_bytes + taps.begin(column);
      }
      ptx::wgmma_wait<1>();  // the products of these registers' last fragments are done
      element::keep(of_step);
      if (left != 0) {
        pipeline::release(left);
        used = 0;
      }
      taps.load(of_step, s_row, bytes, column);
      element::keep(of_step);
      const auto b = row_columns.moved(step / 4 * layout.rows * (8 * kColumns) + step % 4 * 2);
      ptx::wgmma_fence();
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) ptx::wgmma<Element>(acc[tap], of_step[tap], b, true);
      ptx::wgmma_commit();
      bytes += 32 * layout.w.stride;
      ++step;
    };
    int32_t left = (pass.end_unit - pass.unit) * layout.rows * layout.steps;
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
    store(acc, pass.co + row, pass.ci + lane % 4 * 2, pass.kh + kh_part, pass.kw + kw_part * kTaps);
  }

  // Eight lanes have neighbours of the slab, which are a sector.
  __device__ __forceinline__ void store(const float (&acc)[kTaps][kColumns / 2], int32_t co, int32_t first_ci,
                                        int32_t kh, int32_t kw) const {
    if (kh >= layout.h.kernel) return;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if (kw + tap >= layout.w.kernel) continue;
      const int64_t plane = (int64_t{pass.chunk} * layout.h.kernel + kh) * layout.w.kernel + kw + tap;
      float* g_plane = params.slabs + (plane * layout.channels + pass.group * layout.group_ci) * layout.group_co + co;
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        const int32_t ci = first_ci + i / 4 * 8 + i % 2, further = i / 2 % 2 * 8;
        if (ci < layout.group_ci && co + further < layout.group_co) {
          g_plane[int64_t{ci} * layout.group_co + further] = acc[tap][i];
        }
      }
    }
  }
#endif
};

}  // namespace convt::correlate_sm90a

#define CONVT_CORRELATE_INSTANCE(symbol, dtype, precision, taps, columns, consumers, stride, boxes) \
  CONVT_DEFINE_KERNEL(                                                                              \
      correlate_sm90a, symbol,                                                                      \
      hopper::convolve<Correlate<element::ElementOf<DataType::dtype>::type, taps, columns, consumers, stride, boxes>>)
