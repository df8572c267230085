// Main loops of the scatter kernel. A source row is operand A, in registers. The weights of all taps are operand B.
#pragma once

#include "element/registers.cuh"
#include "ptx/operand_layout.cuh"
#include "scatter_sm90a/tile.cuh"

namespace convt::scatter_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// A thread's two adjacent positions of a step's channels. In TF32: channels t and t + 4. In half precision: channels 2
// * t, 2 * t + 1, and both plus 8. t is the lane's index among four.
template <typename Shape>
struct Words {
  uint32_t words[4];

  __device__ __forceinline__ void load(uint32_t s_step, uint32_t channel_bytes) {
    if constexpr (Shape::kElement == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t two[2];
        ptx::load_shared(two, s_step + 4 * i * channel_bytes);
        words[2 * i] = two[0];
        words[2 * i + 1] = two[1];
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = ptx::load_shared(s_step + (i % 2 + i / 2 * 8) * channel_bytes);
    }
  }
};

// Byte offset of a thread's words in a stage whose first column is aligned to 16 bytes. In channels_last: offset of the
// row that it passes to ldmatrix, of position lane % 16.
template <typename Shape>
__device__ __forceinline__ uint32_t place_of_lane(const Params& params, int32_t warp, int32_t lane) {
  const int32_t position = warp * 16;
  if constexpr (Shape::kChannelsLast) {
    const uint32_t row = position + lane % 16;
    return row * kScatterRowBytes + ptx::tensor_swizzle(kScatterRowBytes, row, lane / 16) * 16;
  } else {
    const uint32_t channel_bytes = params.pitch * Shape::kElement;
    const int32_t strip = position >> params.strip_log2;
    return strip * params.chunk_channels * channel_bytes + lane % 4 * (Shape::kElement == 4 ? 1 : 2) * channel_bytes +
           (position - (strip << params.strip_log2) + lane / 4 * 2) * Shape::kElement;
  }
}

// GEMM rows are positions: rows r and r + 8 of a warp are its positions 2 * r and 2 * r + 1.
template <typename Shape>
__device__ __forceinline__ void make_fragments(uint32_t (&fragments)[4], const Words<Shape>& source) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Shape::kElement == 4) {
      ptx::write_fragment_tf32(fragments[i], source.words[i]);
    } else {
      ptx::write_fragment_halves(fragments[i], source.words[i / 2 * 2], source.words[i / 2 * 2 + 1], i % 2);
    }
  }
}

// Accumulators of a thread: acc[s * kSlotAccumulators + 4 * j + 2 * h + i] is slot s, column 8 * j + 2 * (lane % 4) +
// i, of position 16 * warp + 2 * (lane / 4) + h, or in channels_last 16 * warp + lane / 4 + 8 * h.
template <typename Shape>
using Accumulators = float[Shape::kN / 2];

// All products of a source row. s_mine: offset of the thread's first word in a stage.
template <typename Shape>
__device__ __forceinline__ void multiply_row(Accumulators<Shape>& acc, const Params& params, uint32_t s_mine,
                                             uint32_t channel_bytes, const ptx::MatrixDescriptor& weights, Ring* ring) {
  auto b = weights;
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    ring->wait_full();
    uint32_t s_step = s_mine + ring->slot() * params.stage_bytes;
    Words<Shape> words[kScatterBatch];
#pragma unroll
    for (int i = 0; i < kScatterBatch; ++i, s_step += Shape::kStepChannels * channel_bytes)
      words[i].load(s_step, channel_bytes);
#pragma unroll 1
    for (int32_t left = params.chunk_steps; left > 0; left -= kScatterBatch) {
      uint32_t fragments[kScatterBatch][4];
#pragma unroll
      for (int i = 0; i < kScatterBatch; ++i) make_fragments<Shape>(fragments[i], words[i]);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < kScatterBatch; ++i, b = b.moved(2 * Shape::kN)) {
        ptx::wgmma<typename Shape::Element>(acc, fragments[i], b, true);
      }
      ptx::wgmma_commit();
      if (left > kScatterBatch) {
        // Load the next steps' words while the products execute.
#pragma unroll
        for (int i = 0; i < kScatterBatch; ++i, s_step += Shape::kStepChannels * channel_bytes) {
          words[i].load(s_step, channel_bytes);
        }
      } else {
        pipeline::release(ring->empty());
      }
      ptx::wgmma_wait<0>();
      element::fence_registers(fragments);
    }
    ring->advance();
  }
}

// All products of a source row in channels_last. A position's 128 bytes of channels are a row of operand A in memory.
// The copies have rounded float32 to TF32.
template <typename Shape>
__device__ __forceinline__ void multiply_pixel_row(Accumulators<Shape>& acc, const Params& params, uint32_t s_begin,
                                                   const ptx::MatrixDescriptor& weights, Ring* ring) {
  auto b = weights;
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    ring->wait_full();
    const auto a = ptx::MatrixDescriptor::of_rows(s_begin + ring->slot() * params.stage_bytes, kScatterRowBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kScatterBatch; ++i, b = b.moved(2 * Shape::kN)) {
      ptx::wgmma<typename Shape::Element>(acc, a.moved(2 * i), b, true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pipeline::release(ring->empty());
    ring->advance();
  }
}

// All products of a source row in tf32x3. An operand is the sum of two TF32 numbers, and a product is three TF32
// products. Tensor cores round accumulators toward zero. Therefore the products of a batch, small ones first, form a
// run of 32, and runs are added in float32 registers.
template <typename Shape>
__device__ __forceinline__ void multiply_split_row(Accumulators<Shape>& acc, const Params& params, uint32_t s_mine,
                                                   uint32_t channel_bytes, const ptx::MatrixDescriptor& weights,
                                                   Ring* ring) {
  auto b = weights;
  const uint32_t low_weights = params.steps * 2 * Shape::kN;
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    ring->wait_full();
    uint32_t s_step = s_mine + ring->slot() * params.stage_bytes;
#pragma unroll 1
    for (int32_t left = params.chunk_steps; left > 0; left -= kScatterBatch) {
      uint32_t high[kScatterBatch][4], low[kScatterBatch][4];
#pragma unroll
      for (int i = 0; i < kScatterBatch; ++i) {
        Words<Shape> words;
        if constexpr (Shape::kChannelsLast) {
          ptx::load_matrices(words.words, s_step ^ 32 * i);
        } else {
          words.load(s_step, channel_bytes);
          s_step += Shape::kStepChannels * channel_bytes;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) element::write_terms(high[i][j], low[i][j], words.words[j]);
      }
      Accumulators<Shape> run;
      ptx::wgmma_fence();
#pragma unroll
      for (int product = 0; product < 3; ++product) {  // low * high, high * low, high * high
#pragma unroll
        for (int i = 0; i < kScatterBatch; ++i) {
          const auto step = b.moved(i * 2 * Shape::kN);
          ptx::wgmma_tf32(run, product == 0 ? low[i] : high[i], product == 1 ? step.moved(low_weights) : step,
                          product + i > 0);
        }
      }
      ptx::wgmma_commit();
      b = b.moved(kScatterBatch * 2 * Shape::kN);
      if (left == kScatterBatch) {
        pipeline::release(ring->empty());
      }
      ptx::wgmma_wait<0>();
      element::fence_registers(high);
      element::fence_registers(low);
      element::fence_registers(run);
#pragma unroll
      for (int i = 0; i < Shape::kN / 2; ++i) acc[i] = element::add(acc[i], run[i]);
    }
    ring->advance();
  }
}

#endif

}  // namespace convt::scatter_sm90a
