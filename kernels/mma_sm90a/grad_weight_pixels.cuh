// Producer of the gradient of the weight with channels innermost: copies rows of pixels as one run each, or pixel by
// pixel (mma_sm90a/grad_weight_layout.h). Rows outside a tensor are not loaded, because the main loop never multiplies
// them. With params.zero_borders, columns outside are zero.
#pragma once

#include "mma_sm90a/grad_weight_layout.h"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/wgmma_sm90a.cuh"
#include "tiling/strip_loader.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Arrivals of a producer warp at a stage's barrier: one per lane when its copies are complete, and one that adds the
// bytes of bulk copies.
inline constexpr int32_t kPixelArrivals = 33;

// A row of pixels of an operand.
struct PixelLine {
  const unsigned char* g_line;  // pixel 0; may be outside the tensor
  const void* g_tensor;  // valid address for copies of zeros, which do not read it
  int32_t g_step;  // bytes
  uint32_t s_line;
  int32_t s_step;
  int32_t pixels;
  int32_t column;  // of pixel 0
  int32_t column_step;
  int32_t num_columns;  // of the tensor
};

// Copies a line with one warp, `vectors` vectors per pixel. Adjacent lanes copy adjacent vectors. Columns outside the
// tensor become zero. A copy reads its registers late, so each copy in a batch uses separate registers.
template <int kBytes>
__device__ __forceinline__ void copy_line(const PixelLine& line, const PixelCopies& copies, int32_t vectors) {
  constexpr int32_t kAtOnce = 4;
  int32_t vector, pixel = copies.by_vectors(static_cast<int32_t>(threadIdx.x) % 32, &vector);
#pragma unroll 1
  while (pixel < line.pixels) {
    uint32_t s_vector[kAtOnce];
    const void* g_vector[kAtOnce];
    bool wanted[kAtOnce], exists[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int32_t column = line.column + pixel * line.column_step;
      wanted[i] = pixel < line.pixels && vector < vectors;
      exists[i] = static_cast<uint32_t>(column) < static_cast<uint32_t>(line.num_columns);
      s_vector[i] = line.s_line + pixel * line.s_step + vector * kBytes;
      const unsigned char* g_existing = line.g_line + (pixel * line.g_step + vector * kBytes);
      g_vector[i] = exists[i] ? g_existing : line.g_tensor;
      pixel += copies.lanes_pixels, vector += copies.lanes_vectors;
      if (vector >= copies.by_vectors.value) vector -= copies.by_vectors.value, ++pixel;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (!wanted[i]) continue;
      if constexpr (kBytes >= 4) {
        ptx::cp_async_or_zero<kBytes>(s_vector[i], g_vector[i], exists[i]);
      } else {
        ptx::store_shared_16(s_vector[i], exists[i] ? __ldg(static_cast<const unsigned short*>(g_vector[i])) : 0);
      }
    }
  }
}

template <typename Element>
__device__ __forceinline__ void copy_line(const PixelLine& line, const PixelCopies& copies, int32_t channels) {
  const int32_t vectors = channels * static_cast<int32_t>(sizeof(Element)) / copies.vector_bytes;
  switch (copies.vector_bytes) {
    case 16: return copy_line<16>(line, copies, vectors);
    case 8: return copy_line<8>(line, copies, vectors);
    case 4: return copy_line<4>(line, copies, vectors);
    default: return copy_line<2>(line, copies, vectors);
  }
}

// Starts the copies of a stage into a slot. `loader` is the index of this producer warp.
template <typename Element>
__device__ __forceinline__ void load_pixel_stage(const GradWeightParams& params, const tiling::WeightStage& stage,
                                                 unsigned char* s_bytes, int32_t slot, int32_t loader) {
  constexpr int32_t kBytes = sizeof(Element);
  const tiling::WeightPass pass(ptx::shared_address(s_bytes));
  const Axis &h = params.h, &w = params.w;
  const MmaGradWeightLayout& layout = params.layout;
  const StripPitches& pitches = params.pitches;
  unsigned char* s_stage = s_bytes + kStripHeadBytes + slot * params.stage_bytes;
  const uint32_t barrier = ptx::shared_address(s_bytes) + 8 * slot;
  const int32_t row_0 = stage.h * h.stride - h.padding + pass.kh * h.dilation;
  const int32_t column_0 = stage.w * w.stride - w.padding + pass.kw * w.dilation;
  const int32_t pixels = min(params.strip, w.in - stage.w);
  uint32_t bytes = 0;  // of bulk copies

  tiling::StageOperand<Element> x;
  x.g_origin =
      tiling::operand_origin<Element>(params.x, stage.image, pass.group * params.group_ci + pass.ci, stage.h, stage.w);
  x.s_origin = reinterpret_cast<Element*>(s_stage) + (layout.x_runs ? tiling::operand_shift(x.g_origin) : 0);
  const int32_t channels_ci = min(params.block_ci, params.group_ci - pass.ci);
  if (layout.x_runs) {
    x.channels = 1;
    x.rows.value = stage.rows;
    x.begin = x.zeros_begin = 0;
    x.end = x.zeros_end = (pixels - 1) * layout.x_pixel + channels_ci;
    bytes += tiling::copy_rows(params.x, x, loader, params.loaders, barrier,
                               [&](int32_t row, int64_t* offset, int32_t* place) {
                                 *offset = row * params.x.stride[2];
                                 *place = row * pitches.x_row;
                                 return true;
                               });
  } else {
#pragma unroll 1
    for (int32_t row = loader; row < stage.rows; row += params.loaders) {
      const PixelLine line{reinterpret_cast<const unsigned char*>(x.g_origin + row * params.x.stride[2]),
                           params.x.elements,
                           static_cast<int32_t>(params.x.stride[3]) * kBytes,
                           ptx::shared_address(x.s_origin) + row * pitches.x_row * kBytes,
                           layout.x_pixel * kBytes,
                           pixels,
                           stage.w,
                           1,
                           w.in};
      copy_line<Element>(line, params.x_copies, channels_ci);
    }
  }

  tiling::StageOperand<Element> gy;
  gy.g_origin =
      tiling::operand_origin<Element>(params.gy, stage.image, pass.group * params.group_co + pass.co, row_0, column_0);
  gy.s_origin =
      reinterpret_cast<Element*>(s_stage + params.gy_begin) + (layout.gy_runs ? tiling::operand_shift(gy.g_origin) : 0);
  const int32_t channels_co = min(params.block_co, params.group_co - pass.co);
  const int32_t used_slots = params.apart
                                 ? stage.rows * params.block_kh
                                 : (stage.rows - 1) * params.slot_q + (params.block_kh - 1) * params.slot_k + 1;
  // Computes the offsets of row `index` in memory and in the stage. Returns whether the row exists.
  auto gy_row = [&](int32_t index, int64_t* offset, int32_t* place) {
    int32_t k, row;
    if (params.apart) {
      const int32_t q = params.by_block_kh(index, &k);
      row = q * h.stride + k * h.dilation;
      *place = q * pitches.gy_position + k * pitches.gy_tap;
    } else {
      row = index * params.row_step;
      *place = index * pitches.gy_slot;
    }
    *offset = row * params.gy.stride[2];
    return row_0 + row >= 0 && row_0 + row < h.out;
  };
  const int32_t columns = (pixels - 1) * w.stride + (params.taps_w - 1) * w.dilation + 1;  // read by the pixels' taps
  if (layout.gy_runs) {
    const int32_t begin = max(0, -column_0), end = min(columns, w.out - column_0);
    gy.channels = 1;
    gy.rows.value = used_slots;
    gy.begin = gy.zeros_begin = begin * layout.gy_column;
    gy.end = gy.zeros_end = (end - 1) * layout.gy_column + channels_co;
    // The order of warps is reversed, so that with few rows other warps copy grad_output than the input.
    bytes += tiling::copy_rows(params.gy, gy, params.loaders - 1 - loader, params.loaders, barrier, gy_row);
    const int32_t zeros_before = begin * layout.gy_column,
                  zeros = zeros_before + (columns - max(end, begin)) * layout.gy_column;
#pragma unroll 1
    for (int32_t index = loader; params.zero_borders && zeros > 0 && index < used_slots; index += params.loaders) {
      int64_t offset;
      int32_t place;
      if (!gy_row(index, &offset, &place)) continue;
#pragma unroll 1
      for (int32_t i = static_cast<int32_t>(threadIdx.x) % 32; i < zeros; i += 32) {
        gy.s_origin[place + (i < zeros_before ? i : i - zeros_before + end * layout.gy_column)] = Element{};
      }
    }
  } else {
    const int32_t taps = params.by_block_kw.value;  // lines per row
    // If the input is copied by lines too, continue with the warp after the one that copied its last line.
    const int32_t before = layout.x_runs ? 0 : stage.rows % params.loaders;
#pragma unroll 1
    for (int32_t index = loader < before ? loader - before + params.loaders : loader - before;
         index < used_slots * taps; index += params.loaders) {
      int64_t offset;
      int32_t tap, place;
      if (!gy_row(params.by_block_kw(index, &tap), &offset, &place)) continue;
      const int32_t column = tap * w.dilation, step = layout.columns_apart ? w.stride : 1;
      const PixelLine line{reinterpret_cast<const unsigned char*>(gy.g_origin + offset + column * params.gy.stride[3]),
                           params.gy.elements,
                           step * static_cast<int32_t>(params.gy.stride[3]) * kBytes,
                           ptx::shared_address(gy.s_origin) + (place + tap * layout.gy_tap_column) * kBytes,
                           layout.gy_column * kBytes,
                           layout.columns_apart ? pixels : columns,
                           column_0 + column,
                           step,
                           w.out};
      copy_line<Element>(line, params.gy_copies, channels_co);
    }
  }

  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (loader == 0 && lane == 0) {
    *tiling::stage_place(s_bytes, slot) = tiling::StagePlace{ptx::shared_address(x.s_origin),
                                                             ptx::shared_address(gy.s_origin),
                                                             stage.units,
                                                             ceil_div(pixels, 32),
                                                             row_0,
                                                             column_0};
  }
  ptx::mbarrier_arrive_after_copies(barrier);
  bytes = __reduce_add_sync(0xffffffffu, bytes);
  ptx::fence_proxy_async();  // orders the lanes' stores before the slot's next bulk copies
  __syncwarp();  // and before the arrival
  if (lane == 0) ptx::mbarrier_expect(barrier, bytes);
}

#endif

}  // namespace convt::mma_sm90a
