// Which results a tile of the window engine owns, what a warp and a thread hold of them, and what they read of the
// source.
#pragma once

#include "ptx/shared.cuh"
#include "rows_sm90a/tile.cuh"

namespace convt::rows_sm90a::window {

template <WindowShape kOf>
struct Shape : Traits<kOf> {
  static constexpr int kVector = kOf.vector();
  static constexpr int kKernelH = kWindowKernelH;
  static constexpr int kKernelW = kOf.kernel_w;
  static constexpr int kRows = kOf.warp_rows();  // results of a warp
  static constexpr int kSourceRows = kRows + kKernelH - 1;  // that it reads
  static constexpr int kTermBytes = 32 * kOf.block_n;  // of a tap's weights
  static constexpr int kWeightBytes = kOf.weight_bytes();
  static constexpr int kStagedPieces = kOf.staged_pieces();
  static constexpr int kStagedChannels = kOf.staged_channels();
  static constexpr int kStagedPitch = kOf.staged_pitch();
  static constexpr int kStagedBytes = kOf.staged_bytes();
  static constexpr int kBiasBegin = kOf.staged_result_bytes();  // in a warpgroup's staged bytes
};

struct Tile : Place {
  int32_t column, row;  // of its first result; the first tile's may be negative
};

__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile{place_of(params, number)};
  tile.row = tile.outer * params.tile_h;
  tile.column = params.begin_w + tile.inner * params.advance_w;
  return tile;
}

// A thread's accumulators: of row `row` of its warp, column 4 * (lane / 4) + 2 * block + h, channel 8 * j + 2 * (lane %
// 4) + i in r[row][block][4 * j + 2 * h + i].
template <typename Shape>
struct Accumulators {
  float r[Shape::kRows][2][Shape::kN / 2];
};

// Where a warp of a warpgroup lies in the tile: which 32 columns, and which of the warps above each other.
__device__ __forceinline__ int32_t warp_column(const Params& params, int32_t warp) {
  return warp & ((1 << params.warps_w_log2) - 1);
}
__device__ __forceinline__ int32_t warp_row(const Params& params, int32_t warp) { return warp >> params.warps_w_log2; }

#ifdef CONVT_HAS_WGMMA

// Neighbouring words, in vectors of at most kVector words, on which they begin.
template <int kVector, int kWords>
__device__ __forceinline__ void load_words(uint32_t (&words)[kWords], uint32_t s_words) {
#pragma unroll
  for (int word = 0; word < kWords; word += kVector) {
    if constexpr (kVector == 4) {
      if (word + 4 <= kWords) {
        uint32_t four[4];
        ptx::load_shared(four, s_words + 4 * word);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[word + i] = four[i];
        continue;
      }
    }
    int rest = word;
    if (rest + 2 <= kWords) {
      uint32_t two[2];
      ptx::load_shared(two, s_words + 4 * rest);
#pragma unroll
      for (int i = 0; i < 2; ++i) words[rest + i] = two[i];
      rest += 2;
    }
    if (rest < kWords && rest < word + kVector) words[rest] = ptx::load_shared(s_words + 4 * rest);
  }
}

// A thread's columns of a source row: of TF32 those of channels t and t + 4, of half precision those of 2 * t, its
// neighbour, and both 8 further, where t is the lane's place among four.
template <typename Shape>
struct Window {
  static constexpr int kColumns = 4 + Shape::kKernelW - 1;
  static constexpr int kChannels = Shape::kElement == 4 ? 2 : 4;
  static constexpr int kWords = (kColumns * Shape::kElement + 3) / 4;
  uint32_t words[kChannels][kWords];
};

// Where a thread's windows are in a stage. Where rows do not begin on 16 bytes (kShifted), columns are up to 15 bytes
// further than their place in the tile says, in every class of rows and channels as many, and what is before a row is
// the end of another.
template <typename Shape, bool kShifted>
class Source {
 public:
  __device__ __forceinline__ Source(const Params& params, int32_t warp, uint32_t s_slots) : params_(params) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), channel = lane % 4 * (kHalf ? 2 : 1);
    column_ = warp_column(params, warp) * kWindowColumns + lane / 4 * 4;
    first_row_ = warp_row(params, warp) * Shape::kRows;
    s_mine_ = s_slots + column_ * Shape::kElement;
    if constexpr (kShifted) {
      const int32_t classes_log2 = params.channel_classes_log2;
      s_mine_ +=
          (channel & (1 << classes_log2) - 1) * params.box_bytes + (channel >> classes_log2) * params.channel_bytes;
      channels_shift_ = channel * params.channel_shift;
    } else {
      s_mine_ += channel * params.channel_bytes + first_row_ * params.row_bytes;
    }
  }

  // A tile comes next.
  __device__ __forceinline__ void begin(const Tile& tile) {
    if constexpr (kShifted) {
      shift_ = (tile.row + params_.first_h) * params_.row_shift + channels_shift_;
      outside_ = -(tile.column + params_.first_w + column_);
    }
  }

  // The window of source row `row` of the warp, from the stage that begins so many bytes behind the first.
  __device__ __forceinline__ void load(Window<Shape>& window, uint32_t slot, int row) const {
    using Window = Window<Shape>;
    if constexpr (kShifted) {
      int32_t place = first_row_ + row;
      ptx::opaque(place);  // what follows from it is worked out here, not kept for all rows
      const uint32_t s_row = s_mine_ + slot + (place & (1 << params_.row_classes_log2) - 1) * params_.class_bytes +
                             (place >> params_.row_classes_log2) * params_.row_bytes;
      const int32_t shift = shift_ + place * params_.row_shift;
#pragma unroll
      for (int i = 0; i < Window::kChannels; ++i) {
        auto& words = window.words[i];
        if constexpr (kHalf) {
          const int32_t mine = shift + i % 2 * params_.channel_shift;
          uint32_t raw[Window::kWords + 2];
          load_words<2>(raw, s_row + i % 2 * params_.neighbour_bytes + i / 2 * params_.far_bytes + (mine & 4) * 2);
#pragma unroll
          for (int word = 0; word <= Window::kWords; ++word) raw[word] = (mine & 2) != 0 ? raw[word + 1] : raw[word];
#pragma unroll
          for (int word = 0; word < Window::kWords; ++word) {
            words[word] = __funnelshift_r(raw[word], raw[word + 1], (mine & 1) * 16);
          }
        } else {
          uint32_t raw[Window::kWords + 3];
          load_words<4>(raw, s_row + i * params_.far_bytes);
#pragma unroll
          for (int word = 0; word <= Window::kWords; ++word) raw[word] = (shift & 2) != 0 ? raw[word + 2] : raw[word];
#pragma unroll
          for (int word = 0; word < Window::kWords; ++word) words[word] = (shift & 1) != 0 ? raw[word + 1] : raw[word];
        }
        // The first columns of a thread and a row are both multiples of four.
#pragma unroll
        for (int word = 0; word < Window::kWords; ++word) {
          constexpr int kFour = Shape::kElement;  // words of four columns
          words[word] = outside_ > word / kFour * 4 ? 0 : words[word];
        }
      }
    } else {
      const uint32_t s_row = s_mine_ + slot + row * params_.row_bytes;
#pragma unroll
      for (int i = 0; i < Window::kChannels; ++i) {
        load_words<kHalf ? 2 : 4>(window.words[i], s_row + (kHalf ? i % 2 + i / 2 * 8 : 4 * i) * params_.channel_bytes);
      }
    }
  }

 private:
  static constexpr bool kHalf = Shape::kElement == 2;
  const Params& params_;
  uint32_t s_mine_;         // in a stage's first row, or in that of the warp's
  int32_t column_;          // in the tile
  int32_t first_row_;       // of the warp in the tile
  int32_t channels_shift_;  // elements by which the thread's first channel is shifted, modulo 16 bytes
  int32_t shift_;           // and the tile's first row of it
  int32_t outside_;         // columns of the thread before the source's first
};

#endif

}  // namespace convt::rows_sm90a::window
