// Loads a stage of the gradient of the weight (tiling/strips.h): rows of both operands with the layout of global
// memory. Elements outside a tensor are not loaded, because the main loop never multiplies them. Called by the kernels
// of thin/ and mma_sm90a/.
#pragma once

#include "element/arithmetic.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "tiling/strips.h"

namespace convt::tiling {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CONVT_HAS_BULK_ROWS 1
#endif

// The work of a CTA: first channels within the group, first taps, chunk of pixels. Stored in shared memory, to keep
// registers for accumulators.
struct WeightPass {
  int32_t group;
  int32_t ci;
  int32_t co;
  int32_t kh;
  int32_t kw;
  int32_t chunk;

  __device__ __forceinline__ WeightPass(const StripParams& params, int32_t thread_kw) {
    Digits digits{static_cast<int32_t>(blockIdx.x)};
    kw = digits.next(params.run_tiles) * params.block_runs * thread_kw;
    kh = digits.next(params.kh_tiles) * params.block_kh;
    co = digits.next(params.co_tiles) * params.block_co;
    ci = digits.next(params.ci_tiles) * params.block_ci;
    group = digits.next(params.groups);
    chunk = digits.rest;
  }
  __device__ __forceinline__ explicit WeightPass(uint32_t s_head) {
    uint32_t words[4];
    ptx::load_shared(words, s_head + kStripPassBegin);
    group = words[0], ci = words[1], co = words[2], kh = words[3];
    ptx::load_shared(words, s_head + kStripPassBegin + 16);
    kw = words[0], chunk = words[1];
  }
  __device__ __forceinline__ void store(uint32_t s_head) const {
    const uint32_t first[4] = {static_cast<uint32_t>(group), static_cast<uint32_t>(ci), static_cast<uint32_t>(co),
                               static_cast<uint32_t>(kh)};
    const uint32_t second[4] = {static_cast<uint32_t>(kw), static_cast<uint32_t>(chunk), 0, 0};
    ptx::store_shared(s_head + kStripPassBegin, first);
    ptx::store_shared(s_head + kStripPassBegin + 16, second);
  }
};

// Pixels of a stage: `rows` rows of one strip of one image.
struct WeightStage {
  int32_t units;
  int32_t image;
  int32_t h;
  int32_t w;
  int32_t rows;  // rows that exist

  __device__ __forceinline__ WeightStage(const StripParams& params, int32_t unit, int32_t end_unit) {
    int32_t first, strip;
    image = params.by_strips(params.by_units_of_strip(unit, &first), &strip);
    units = min(min(params.tile_units, end_unit - unit), params.units_of_strip - first);
    h = first * params.unit_rows;
    w = strip * params.strip;
    rows = min(units * params.unit_rows, params.h.in - h);
  }
};

// Addresses of a stage that all threads need: its pixel 0, tap (0, 0) of the pass and first channels.
struct StagePlace {
  uint32_t s_x;   // addresses in shared memory
  uint32_t s_gy;
  int32_t units;
  int32_t num_steps;  // steps of 32 columns
  int32_t row;    // coordinates in grad_output
  int32_t column;
};
static_assert(sizeof(StagePlace) <= kStripPlaceBytes);

__device__ __forceinline__ StagePlace* stage_place(unsigned char* s_bytes, int32_t slot) {
  return reinterpret_cast<StagePlace*>(s_bytes + kStripPlacesBegin + slot * kStripPlaceBytes);
}

// Address of row 0, column 0 of the first channel of a stage. It may be outside the tensor.
template <typename Element>
__device__ __forceinline__ const Element* operand_origin(const StripOperand& operand, int32_t image, int32_t channel,
                                                         int32_t row, int32_t column) {
  return static_cast<const Element*>(operand.elements) + image * operand.stride[0] + channel * operand.stride[1] +
         row * operand.stride[2] + column * operand.stride[3];
}
// Elements before an operand's origin in a stage: the origin's offset within a vector in memory.
template <typename Element>
__device__ __forceinline__ int32_t operand_shift(const Element* g_origin) {
  constexpr uint32_t kElems = 16 / sizeof(Element);
  return static_cast<int32_t>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(g_origin) / sizeof(Element)) &
                              (kElems - 1));
}

template <typename Element>
__device__ __forceinline__ void copy_element(Element* s_element, const Element* g_element) {
  if constexpr (sizeof(Element) == 4) {
    ptx::cp_async<4>(ptx::shared_address(s_element), g_element);
  } else {
    *s_element = *g_element;
  }
}

#ifdef CONVT_HAS_BULK_ROWS
// One thread copies a row in whole vectors, including vectors that it shares with other rows of the tensor. Returns the
// bytes that `barrier` must expect.
template <typename Element>
__device__ __forceinline__ uint32_t copy_row(const StripOperand& operand, const Element* g_row, Element* s_row,
                                             int32_t count, uint32_t barrier) {
  constexpr uintptr_t kVector = 16;
  const auto row = reinterpret_cast<uintptr_t>(g_row), row_end = row + count * sizeof(Element);
  const auto tensor = reinterpret_cast<uintptr_t>(operand.elements),
             tensor_end = reinterpret_cast<uintptr_t>(operand.end);
  uintptr_t begin = row & ~(kVector - 1), end = (row_end + kVector - 1) & ~(kVector - 1);
  if (begin < tensor) {  // start of the tensor
    begin += kVector;
    for (int32_t i = 0; row + i * sizeof(Element) < min(begin, row_end); ++i) s_row[i] = g_row[i];
  }
  if (end > tensor_end) {  // end of the tensor
    end -= kVector;
    for (int32_t i = count - 1; i >= 0 && row + i * sizeof(Element) >= max(end, row); --i) s_row[i] = g_row[i];
  }
  if (begin >= end) return 0;
  const uint32_t s_begin = ptx::shared_address(s_row) - static_cast<uint32_t>(row - begin);
  ptx::bulk_copy(s_begin, reinterpret_cast<const void*>(begin), static_cast<uint32_t>(end - begin), barrier);
  return static_cast<uint32_t>(end - begin);
}
#endif

// Rows of an operand of a stage: columns begin .. end - 1 of `rows` rows of each of `channels` channels.
template <typename Element>
struct StageOperand {
  const Element* g_origin;  // row 0, column 0 of the first channel; may be outside the tensor
  Element* s_origin;
  int32_t channels;
  FastDivmod rows;
  int32_t begin;
  int32_t end;
  int32_t zeros_begin;  // bulk rows: columns before `begin` and from `end` on are filled with zeros
  int32_t zeros_end;
};

// row_of(index, &offset, &place): whether row `index` (rows of channel 0, then of channel 1, ...) exists, and its
// offsets from the origins in global and shared memory.

#ifdef CONVT_HAS_BULK_ROWS
// Each lane of `num_warps` warps copies one row at a time. Returns the bytes that will arrive at `barrier`.
template <typename Element, typename RowOf>
__device__ __forceinline__ uint32_t copy_rows(const StripOperand& operand, const StageOperand<Element>& stage,
                                              int32_t warp, int32_t num_warps, uint32_t barrier, RowOf row_of) {
  uint32_t bytes = 0;
  if (stage.begin >= stage.end) return 0;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t index = warp + lane * num_warps; index < stage.channels * stage.rows.value; index += 32 * num_warps) {
    int64_t offset;
    int32_t place;
    if (!row_of(index, &offset, &place)) continue;
    bytes += copy_row(operand, stage.g_origin + offset + stage.begin, stage.s_origin + place + stage.begin,
                      stage.end - stage.begin, barrier);
    for (int32_t i = stage.zeros_begin; i < stage.begin; ++i) stage.s_origin[place + i] = Element{};
    for (int32_t i = stage.end; i < stage.zeros_end; ++i) stage.s_origin[place + i] = Element{};
  }
  return bytes;
}
#endif

// All threads copy. If columns are contiguous, each warp copies rows by vectors. Otherwise threads copy single
// elements, and adjacent threads copy adjacent channels if channels are contiguous.
template <typename Element, typename RowOf>
__device__ __forceinline__ void load_rows(const StripOperand& operand, const StageOperand<Element>& stage,
                                          RowOf row_of) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x), num_threads = static_cast<int32_t>(blockDim.x);
  const int32_t lane = thread % 32, count = stage.end - stage.begin;
  int64_t offset;
  int32_t place;
  if (count <= 0) return;
  if (operand.stride[3] == 1) {
    constexpr int32_t kElems = 16 / sizeof(Element), kBytes = sizeof(Element);
    for (int32_t index = thread / 32; index < stage.channels * stage.rows.value; index += num_threads / 32) {
      if (!row_of(index, &offset, &place)) continue;
      const Element* g_row = stage.g_origin + offset + stage.begin;
      const int32_t head = operand_shift(g_row);
      const Element* g_vector = g_row - head + lane * kElems;
      uint32_t s_vector = ptx::shared_address(stage.s_origin + place + stage.begin - head + lane * kElems);
      int32_t rest = (count + head) * kBytes - lane * 16;
#pragma unroll 2
      for (; rest >= 16; rest -= 32 * 16) {
        ptx::cp_async_past_l1(s_vector, g_vector);
        g_vector += 32 * kElems, s_vector += 32 * 16;
      }
      if (rest > 0) ptx::cp_async_rest(s_vector, g_vector, rest);
    }
    return;
  }
  int32_t lanes_log2 = 0;  // lanes for channels
  while (operand.stride[1] == 1 && lanes_log2 < 5 && (1 << lanes_log2) < stage.channels) ++lanes_log2;
  for (int32_t row = 0; row < stage.rows.value; ++row) {
    for (int32_t c = thread & ((1 << lanes_log2) - 1); c < stage.channels; c += 1 << lanes_log2) {
      if (!row_of(c * stage.rows.value + row, &offset, &place)) continue;
#pragma unroll 4
      for (int32_t i = stage.begin + (thread >> lanes_log2); i < stage.end; i += num_threads >> lanes_log2) {
        copy_element(stage.s_origin + place + i, stage.g_origin + offset + i * operand.stride[3]);
      }
    }
  }
}

// Starts the copies of a stage into a slot. Each loading warp arrives at the slot's barrier, which also counts the
// bytes of bulk copies. `loader` is the index of this warp among the loading warps.
template <typename Element>
__device__ __forceinline__ void load_weight_stage(const StripParams& params, const WeightStage& stage,
                                                  unsigned char* s_bytes, int32_t slot, bool bulk, int32_t loader) {
  const WeightPass pass(ptx::shared_address(s_bytes));
  const Axis &h = params.h, &w = params.w;
  const StripPitches& pitches = params.pitches;
  unsigned char* s_stage = s_bytes + kStripHeadBytes + slot * params.stage_bytes;
  const int32_t row_0 = stage.h * h.stride - h.padding + pass.kh * h.dilation;
  const int32_t column_0 = stage.w * w.stride - w.padding + pass.kw * w.dilation;
  const int32_t columns = min(params.strip, w.in - stage.w);

  StageOperand<Element> x;
  x.g_origin = operand_origin<Element>(params.x, stage.image, pass.group * params.group_ci + pass.ci, stage.h, stage.w);
  x.s_origin = reinterpret_cast<Element*>(s_stage) + operand_shift(x.g_origin);
  x.channels = min(params.block_ci, params.group_ci - pass.ci);
  x.rows = params.by_x_rows;
  x.begin = x.zeros_begin = 0;
  x.end = x.zeros_end = params.merged_rows ? stage.rows * w.in : columns;
  auto x_row = [&](int32_t index, int64_t* offset, int32_t* place) {
    int32_t row;
    const int32_t channel = params.by_x_rows(index, &row);
    *offset = channel * params.x.stride[1] + row * params.x.stride[2];
    *place = channel * pitches.x_channel + row * pitches.x_row;
    return row < stage.rows;
  };

  StageOperand<Element> gy;
  gy.g_origin =
      operand_origin<Element>(params.gy, stage.image, pass.group * params.group_co + pass.co, row_0, column_0);
  gy.s_origin = reinterpret_cast<Element*>(s_stage + params.gy_begin) + operand_shift(gy.g_origin);
  gy.channels = min(params.block_co, params.group_co - pass.co);
  gy.rows = params.by_slots;
  gy.begin = max(0, -column_0);
  gy.end = min(params.columns, w.out - column_0);
  gy.zeros_begin = params.zero_borders ? 0 : gy.begin;
  gy.zeros_end = params.zero_borders ? (columns - 1) * w.stride + (params.taps_w - 1) * w.dilation + 1 : gy.end;
  const int32_t used_slots = params.apart
                                 ? stage.rows * params.block_kh
                                 : (stage.rows - 1) * params.slot_q + (params.block_kh - 1) * params.slot_k + 1;
  auto gy_row = [&](int32_t index, int64_t* offset, int32_t* place) {
    int32_t slot_index, k, row;
    const int32_t channel = params.by_slots(index, &slot_index);
    *place = channel * pitches.gy_channel;
    if (params.apart) {
      const int32_t q = params.by_block_kh(slot_index, &k);
      row = q * h.stride + k * h.dilation;
      *place += q * pitches.gy_position + k * pitches.gy_tap;
    } else {
      row = slot_index * params.row_step;
      *place += slot_index * pitches.gy_slot;
    }
    *offset = channel * params.gy.stride[1] + row * params.gy.stride[2];
    return slot_index < used_slots && row_0 + row >= 0 && row_0 + row < h.out;
  };

  if (loader == 0 && threadIdx.x % 32 == 0) {
    *stage_place(s_bytes, slot) = StagePlace{ptx::shared_address(x.s_origin),
                                             ptx::shared_address(gy.s_origin),
                                             stage.units,
                                             ceil_div(columns, 32),
                                             row_0,
                                             column_0};
  }
#ifdef CONVT_HAS_BULK_ROWS
  if (bulk) {
    const uint32_t barrier = ptx::shared_address(s_bytes) + 8 * slot;
    const int32_t x_loaders = params.x_loaders;  // warps for the input; a single warp copies both operands
    uint32_t bytes = 0;
    if (loader < x_loaders) bytes += copy_rows(params.x, x, loader, x_loaders, barrier, x_row);
    if (loader >= x_loaders || params.loaders == 1) {
      const int32_t first = params.loaders == 1 ? 0 : x_loaders;
      bytes += copy_rows(params.gy, gy, loader - first, params.loaders - first, barrier, gy_row);
    }
    bytes = __reduce_add_sync(0xffffffffu, bytes);
    ptx::fence_proxy_async();  // orders the lanes' stores before later bulk copies into the slot
    __syncwarp();  // and before the arrival
    if (threadIdx.x % 32 == 0) ptx::mbarrier_expect(barrier, bytes);
    return;
  }
#endif
  load_rows(params.x, x, x_row);
  load_rows(params.gy, gy, gy_row);
}

}  // namespace convt::tiling
