// Tiles of `window`: coordinates, accumulators and source windows of a thread.
#pragma once

#include "ptx/shared.cuh"
#include "rows_sm90a/tile.cuh"

namespace convt::rows_sm90a::window {

template <WindowShape kOf>
struct Shape : Traits<kOf> {
  static constexpr int kVector = kOf.vector();
  static constexpr int kKernelH = kWindowKernelH;
  static constexpr int kKernelW = kOf.kernel_w;
  static constexpr int kRows = kOf.warp_rows();  // result rows per warp
  static constexpr int kSourceRows = kRows + kKernelH - 1;  // source rows per warp
  static constexpr int kTermBytes = 32 * kOf.block_n;  // weights of a tap and term
  static constexpr int kWeightBytes = kOf.weight_bytes();
  static constexpr int kStagedPieces = kOf.staged_pieces();
  static constexpr int kStagedChannels = kOf.staged_channels();
  static constexpr int kStagedPitch = kOf.staged_pitch();
  static constexpr int kStagedBytes = kOf.staged_bytes();
  static constexpr int kBiasBegin = kOf.staged_result_bytes();  // offset in a warpgroup's staged bytes
};

struct Tile : Place {
  int32_t column, row;  // first result; the column may be negative
};

__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile{place_of(params, number)};
  tile.row = tile.outer * params.tile_h;
  tile.column = params.begin_w + tile.inner * params.advance_w;
  return tile;
}

// A thread's accumulators. r[row][block][4 * j + 2 * h + i] is row `row` and column 4 * (lane / 4) + 2 * block + h of
// the warp, channel 8 * j + 2 * (lane % 4) + i.
template <typename Shape>
struct Accumulators {
  float r[Shape::kRows][2][Shape::kN / 2];
};

// Position of a warp in the tile, in units of 32 columns and kRows rows. With warp % 4: in its warpgroup's half.
__device__ __forceinline__ int32_t warp_column(const Params& params, int32_t warp) {
  return warp & ((1 << params.warps_w_log2) - 1);
}
__device__ __forceinline__ int32_t warp_row(const Params& params, int32_t warp) { return warp >> params.warps_w_log2; }

#ifdef CONVT_HAS_WGMMA

// Loads contiguous words in vectors of at most kVector words. `s_words` is aligned to kVector words.
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

// A thread's columns of a source row. With t = lane % 4 they belong to channels t and t + 4 in float32, and to channels
// 2 * t, 2 * t + 1, 2 * t + 8 and 2 * t + 9 in half precision.
template <typename Shape>
struct Window {
  static constexpr int kColumns = 4 + Shape::kKernelW - 1;
  static constexpr int kChannels = Shape::kElement == 4 ? 2 : 4;
  static constexpr int kWords = (kColumns * Shape::kElement + 3) / 4;
  uint32_t words[kChannels][kWords];
};

// Locates a thread's windows in a stage. If rows are not aligned to 16 bytes (kShifted), columns are shifted to the
// right by up to 15 bytes, by the same amount within a class of rows and channels. The elements before a row are then
// the end of another row.
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

  // Called at the start of each tile.
  __device__ __forceinline__ void begin(const Tile& tile) {
    if constexpr (kShifted) {
      shift_ = (tile.row + params_.first_h) * params_.row_shift + channels_shift_;
      outside_ = -(tile.column + params_.first_w + column_);
    }
  }

  // Loads the window of the warp's source row `row`. `slot`: byte offset of the stage.
  __device__ __forceinline__ void load(Window<Shape>& window, uint32_t slot, int row) const {
    using Window = Window<Shape>;
    if constexpr (kShifted) {
      int32_t place = first_row_ + row;
      ptx::opaque(place);  // derived values are computed here, not kept in registers for all rows
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
        // Zero the columns before the row, in groups of four: a thread's first source column is a multiple of four.
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
  uint32_t s_mine_;         // in the first stage: in its first row if kShifted, otherwise in the warp's first row
  int32_t column_;          // first column in the tile
  int32_t first_row_;       // the warp's first row in the tile
  int32_t channels_shift_;  // shift of the thread's first channel in elements, modulo 16 bytes
  int32_t shift_;           // shift of the tile's first source row of this channel
  int32_t outside_;         // columns of the thread before the source's first column
};

#endif

}  // namespace convt::rows_sm90a::window
