// The first operands of a step of K: what a thread loads of rows of grad_output, and the fragments of a warpgroup's
// neighbouring taps that it makes of that. A tap is a shift of what is loaded. Columns lie in boxes of 128 bytes, whose
// 16 bytes are in the order of tensor_swizzle(): eight rows of a column have different banks.
#pragma once

#include "element/registers.cuh"
#include "ptx/shared.cuh"

namespace convt::correlate_sm90a {

#ifdef CONVT_HAS_WGMMA

// kStride: of half precision, from a pixel's columns to the next's; of float32 any stride is one of the launch.
template <typename Element, int kTaps, int kStride, bool kBoxes>
struct Taps {
  static constexpr bool kHalf = sizeof(Element) == 2;
  // Of half precision, words of two columns that a thread reads for two pixels, those of the last tap too where the
  // first one is a word's upper half.
  static constexpr int kWords = kHalf ? (kTaps + 1) / 2 + kStride : kTaps;

  int32_t tap_step;  // bytes from a tap to the next, or from a word to the next
  int32_t next_pixels;  // bytes to a thread's second pixels
  int32_t box_step;  // from a box of 128 bytes of columns to the next
  int32_t order;  // what the swizzle makes of the thread's rows
  int32_t next_row;  // bytes to a thread's second row
  bool swaps;

  __device__ __forceinline__ Taps(int32_t stride, int32_t dilation, int32_t box_step, int32_t pitch, int32_t lane)
      : box_step(box_step), order(lane / 4 * 16), next_row(8 * pitch) {
    tap_step = kHalf ? 4 : 4 * dilation;
    next_pixels = 16 * stride;
    // Pixels two words apart have every second bank, and rows meet. Of neighbouring words, every second row reads the
    // other one first.
    swaps = (kHalf ? kStride : stride) % 2 == 0 && (kHalf || dilation % 2 == 1) && lane / 4 % 2 == 1;
  }

  // Bytes to the word that has a column.
  __device__ __forceinline__ static int32_t begin(int32_t column) { return kHalf ? column / 2 * 4 : column * 4; }

  __device__ __forceinline__ uint32_t place(int32_t bytes) const {
    return kBoxes ? (bytes >> 7) * box_step + ((bytes & 127) ^ order) : bytes;
  }

  // `s`: where the thread's first row begins; `bytes`: from there to its first pixel's first tap, as begin() says;
  // `column`: that tap's.
  __device__ __forceinline__ void load(uint32_t (&fragments)[kTaps][4], uint32_t s, int32_t bytes,
                                       int32_t column) const {
    const bool upper = kHalf && column % 2 == 1;  // the first tap is a word's upper half
    uint32_t words[4][kWords];
#pragma unroll
    for (int pixels = 0; pixels < 2; ++pixels) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        // The last one of an odd number has no neighbour to swap places with.
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
          // Columns tap and tap + 1, or one further, which are a word or halves of two.
          const uint32_t selector = tap % 2 == 0 ? (upper ? 0x5432 : 0x3210) : (upper ? 0x7654 : 0x5432);
          fragments[tap][i] = __byte_perm(word(tap / 2), word(tap / 2 + 1), selector);
        } else {
          // Of both pixels' words either the lower or the upper halves.
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
