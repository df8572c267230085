// The upsample engine's products: 64 positions of source rows are the first operand, in registers, the weights of a
// quad of phases are the second.
#pragma once

#include "upsample_sm90a/tile.cuh"

namespace convt::upsample_sm90a {

#ifdef CONVT_HAS_WGMMA

// Of position 16 * warp + lane / 4 + 8 * h, quad q, column 8 * j + 2 * (lane % 4) + i: sums[q][4 * j + 2 * h + i].
using Accumulators = float[2][kUpsampleColumns / 2];

// What a thread reads of a source row for a quad: of its positions and channels, the columns of both taps along W.
template <typename S>
__device__ __forceinline__ void load_fragments(uint32_t (&fragments)[S::kSteps][4], uint32_t s_row, int32_t column) {
  constexpr int kChannelBytes = S::kPitch * S::kElement;
  const bool odd = column % 2 == 1;  // half precision reads words of two columns
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const uint32_t s_mine = s_row + lane % 4 * kChannelBytes + (S::kElement == 4 ? column : column / 2 * 2) * S::kElement;
#pragma unroll
  for (int step = 0; step < kUpsampleChannels / 8; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t s_word = s_mine + (8 * step + i / 2 * 4) * kChannelBytes + i % 2 * 8 * S::kElement;
      const uint32_t first = ptx::load_shared(s_word), second = ptx::load_shared(s_word + 4);
      if constexpr (S::kElement == 4) {
        ptx::write_fragment_tf32(fragments[step][i], second);
        ptx::write_fragment_tf32(fragments[S::kSteps / 2 + step][i], first);
      } else {
        ptx::write_fragment(fragments[step][i], __byte_perm(first, second, odd ? 0x5432 : 0x3210));
      }
    }
  }
}

// All products of a position row. s_rows: the source rows of the taps along H. Other warpgroups multiply or store while
// this one waits.
template <typename S>
__device__ __forceinline__ void multiply_rows(Accumulators& sums, const uint32_t (&s_rows)[2], int32_t column,
                                              const Operand& operand, const ptx::MatrixDescriptor& weights) {
#pragma unroll
  for (int i = 0; i < kUpsampleColumns; ++i) sums[i % 2][i / 2] = 0;
#pragma unroll 1
  for (int th = 0; th < operand.taps_h; ++th) {
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
      uint32_t fragments[S::kSteps][4];
      load_fragments<S>(fragments, th == 0 ? s_rows[0] : s_rows[1], column + quad * operand.split);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
        ptx::wgmma<typename S::Element>(
            sums[quad], fragments[step],
            weights.moved(((2 * quad + th) * S::kOperandBytes + 16 * quad + step * kUpsampleStepBytes) / 16), true);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < 4 * S::kSteps; ++i) ptx::keep_fragment(fragments[i / 4][i % 4]);
    }
  }
}

#endif

}  // namespace convt::upsample_sm90a
