// The first operand of the strided engine's products: columns of one row of the source, from shared memory as they lie
// in global memory, to fragments for every tap.
#pragma once

#include "strided_sm90a/tile.cuh"

namespace convt::strided_sm90a {

#ifdef CONVT_HAS_WGMMA

// [half of a step of K][column]: a channel, or two neighbours in half precision.
template <typename Shape>
using Words = uint32_t[2][Shape::kWindow];

template <typename Shape>
using Fragments = uint32_t[Shape::kFragments][4];

// The thread's columns of a row from `s_own` on, and those before and after them, or zeros where there are none.
template <typename Shape>
__device__ __forceinline__ void load_words(Words<Shape>& words, uint32_t s_own, const Quad& quad,
                                           uint32_t channel_bytes) {
  constexpr int kOwn = 4 * Shape::kStep;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (Shape::kElement == 4) {
      const uint32_t s_channel = s_own + 4 * half * channel_bytes;
#pragma unroll
      for (int i = 0; i < kOwn; i += 4) {
        uint32_t four[4];
        ptx::load_shared(four, s_channel + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; ++k) words[half][1 + i + k] = four[k];
      }
      if constexpr (Shape::kLeft) words[half][0] = ptx::load_shared_or_zero(s_channel - 4, quad.has_left);
      if constexpr (Shape::kRight) {
        words[half][1 + kOwn] = ptx::load_shared_or_zero(s_channel + 4 * kOwn, quad.has_right);
      }
    } else {
      uint32_t own[2][kOwn / 2], left[2], right[2];  // pairs of columns
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const uint32_t s_channel = s_own + (8 * half + c) * channel_bytes;
        ptx::load_shared(own[c], s_channel);
        if constexpr (Shape::kLeft) left[c] = ptx::load_shared_or_zero(s_channel - 4, quad.has_left);
        if constexpr (Shape::kRight) right[c] = ptx::load_shared_or_zero(s_channel + 2 * kOwn, quad.has_right);
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        words[half][1 + i] = __byte_perm(own[0][i / 2], own[1][i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
      }
      if constexpr (Shape::kLeft) words[half][0] = __byte_perm(left[0], left[1], 0x7632);
      if constexpr (Shape::kRight) words[half][1 + kOwn] = __byte_perm(right[0], right[1], 0x5410);
    }
  }
}

// Products read their fragments while they are in flight, so that the registers are written here and not a moment
// sooner. `zero` is 0, which ptxas does not know: it drops a copy.
template <typename Shape>
__device__ __forceinline__ void write_fragment(uint32_t& fragment, uint32_t word, uint32_t zero) {
  if constexpr (Shape::Traits::kFloat32) {
    ptx::write_fragment_tf32(fragment, word);
  } else {
    ptx::write_fragment(fragment, word ^ zero);
  }
}

// Where fragment number `f` of a group has its first position's column in the window, or -1. Its second position is two
// further. Where a tap reads one fragment for the first block of positions, it reads the next one for the second.
template <typename Shape>
__device__ constexpr int fragment_column(int group, int f) {
  if constexpr (Shape::kOutput) return f + (Shape::kAllPhases ? 1 : 0);
  return group + 2 * f < Shape::kKernel + 2 ? group + 2 * f : -1;  // even or odd columns
}

template <typename Shape>
__device__ __forceinline__ void to_fragments(Fragments<Shape>& fragments, const Words<Shape>& words, int group,
                                             uint32_t zero) {
#pragma unroll
  for (int f = 0; f < Shape::kFragments; ++f) {
    const int column = fragment_column<Shape>(group, f);
    if (column < 0) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      write_fragment<Shape>(fragments[f][i], words[i / 2][column + i % 2 * 2 * Shape::kStep], zero);
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void keep(Fragments<Shape>& fragments) {
#pragma unroll
  for (int f = 0; f < Shape::kFragments; ++f) {
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::keep_fragment(fragments[f][i]);
  }
}

#endif

}  // namespace convt::strided_sm90a
