// Operand A of a step of K: the words of grad_output rows that a thread loads, and the fragments of a warpgroup's
// adjacent taps made from them. A tap is a shift of the loaded columns. With kBoxes, columns are in swizzled boxes of
// 128 bytes (tensor_swizzle()), so that eight rows of a column are in different banks.
#pragma once

#include "element/registers.cuh"
#include "ptx/shared.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// kStride: the W stride in half precision. In float32 the stride is a launch parameter.
template <typename Element, int kTaps, int kStride, bool kBoxes>
struct Taps {
  static constexpr bool kHalf = sizeof(Element) == 2;
  // Words that a thread reads per row. In half precision these are words of two columns for two pixels. They include
  // the last tap even if the first tap is the upper half of a word.
  static constexpr int kWords = kHalf ? (kTaps + 1) / 2 + kStride : kTaps;

  int32_t tap_step;  // bytes between taps (float32) or words (half precision)
  int32_t next_pixels;  // bytes to the thread's second pixels
  int32_t box_step;  // bytes between boxes of 128 bytes of columns
  int32_t order;  // swizzle of the thread's rows, XORed to byte offsets
  int32_t next_row;  // bytes to the thread's second row
  bool swaps;

  __device__ __forceinline__ Taps(int32_t stride, int32_t dilation, int32_t box_step, int32_t pitch, int32_t lane)
      : box_step(box_step), order(lane / 4 * 16), next_row(8 * pitch) {
    tap_step = kHalf ? 4 : 4 * dilation;
    next_pixels = 16 * stride;
    // Pixels two words apart use every second bank, so that rows would conflict. Every second row therefore reads the
    // words of each pair in reverse order.
    swaps = (kHalf ? kStride : stride) % 2 == 0 && (kHalf || dilation % 2 == 1) && lane / 4 % 2 == 1;
  }

  // Byte offset of the word that contains a column.
  __device__ __forceinline__ static int32_t begin(int32_t column) { return kHalf ? column / 2 * 4 : column * 4; }

  __device__ __forceinline__ uint32_t place(int32_t bytes) const {
    return kBoxes ? (bytes >> 7) * box_step + ((bytes & 127) ^ order) : bytes;
  }

  // `s` is the start of the thread's first row. `bytes` is the offset of its first pixel's first tap from there, by
  // begin(). `column` is that tap's column.
  __device__ __forceinline__ void load(uint32_t (&fragments)[kTaps][4], uint32_t s, int32_t bytes,
                                       int32_t column) const {
    const bool upper = kHalf && column % 2 == 1;  // the first tap is the upper half of a word
    uint32_t words[4][kWords];
#pragma unroll
    for (int pixels = 0; pixels < 2; ++pixels) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        // With an odd number of words, the last one has no partner.
        const int other = k + 1 == kWords && k % 2 == 0 ? k : k ^ 1;
        const uint32_t s_word = s + place(bytes + pixels * next_pixels + (swaps ? other : k) * tap_step);
        words[2 * pixels][k] = ptx::load_shared(s_word);
        words[2 * pixels + 1][k] = ptx::load_shared(s_word + (kBoxes ? 8 * 128 : next_row));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto word = [&](int k) {
        const int other = k + 1 == kWords && k % 2 == 0 ? k : k ^ 1;
        return swaps ? words[i][other] : words[i][k];
      };
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        if constexpr (!kHalf) {
          fragments[tap][i] = word(tap);
        } else if constexpr (kStride == 1) {
          // Columns tap and tap + 1, one further if `upper`: one word, or halves of two.
          const uint32_t selector = tap % 2 == 0 ? (upper ? 0x5432 : 0x3210) : (upper ? 0x7654 : 0x5432);
          fragments[tap][i] = __byte_perm(word(tap / 2), word(tap / 2 + 1), selector);
        } else {
          // The lower halves, or the upper halves, of both pixels' words.
          const bool further = tap % 2 == 1 && upper;
          const uint32_t one = further ? word(tap / 2 + 1) : word(tap / 2);
          const uint32_t other = further ? word(tap / 2 + 2 < kWords ? tap / 2 + 2 : 0) : word(tap / 2 + 1);
          const uint32_t selector = (tap % 2 == 1) != upper ? 0x7632 : 0x5410;
          fragments[tap][i] = __byte_perm(one, other, selector);
        }
      }
    }
  }
};

#endif

}  // namespace convt::correlate_sm90a
