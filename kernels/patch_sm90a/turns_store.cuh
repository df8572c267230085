// What warpgroups that take turns hold of a tile, and how its results leave: some channels at a time by way of shared
// memory, staged as they lie in the result, so that a warp stores whole runs.
#pragma once

#include "epilogue/bias.cuh"
#include "patch_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"

namespace convt::patch_sm90a {

// A warpgroup's tile: 128 positions of 32 channels of all taps, or in half precision 64 positions of 64. Columns of the
// product are taps, of these channels each.
template <typename TraitsValue>
struct TurnsShape {
  using Traits = TraitsValue;
  using Element = typename Traits::Element;
  static constexpr PatchForm kForm = PatchForm::kTurns;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kTaps = kPatchTaps;
  static constexpr int kChannels = turns_channels(kElement);
  static constexpr int kStagePositions = turns_positions(kElement);
  static constexpr int kRowBlocks = kStagePositions / kPatchPositions;
  static constexpr int kColumnBlocks = kChannels * kPatchTaps / 128;  // of a product
  static constexpr int kSteps = kTurnsSteps;
  static constexpr int kStageChannels = 32 * kSteps / kElement, kStageRows = kStageChannels;
  static constexpr int kRowBytes = patch_row_bytes(kForm, kStagePositions, kElement);
  static constexpr int kStageBytes = kRowBytes * kStageRows;
  static constexpr int kPlaneBytes = kPatchTaps * kChannels * 16;
  static constexpr int kChunkBytes = 2 * kSteps * kPlaneBytes;  // weights of a stage
  static constexpr bool kByChannels = false, kGathers = false;

  // Sum 4 * j + 2 * h + i of blocks [row][column] is column 8 * j + 2 * (lane % 4) + i of the lane's position h.
  struct Accumulators {
    float r[kRowBlocks * kColumnBlocks][64];
  };

  // Of a block of 64 positions: a lane's two are neighbours.
  __device__ __forceinline__ static int32_t first_position() {
    return static_cast<int32_t>(threadIdx.x) % 128 / 32 * 16 + static_cast<int32_t>(threadIdx.x) % 32 / 4 * 2;
  }
  __device__ __forceinline__ static uint32_t words_begin() {
    return threadIdx.x % 4 * (kElement == 4 ? 1 : 2) * kRowBytes + first_position() * kElement;
  }
};

#ifdef CONVT_HAS_WGMMA

// The words of a step of K that a thread's fragment is made of.
template <typename Shape>
__device__ __forceinline__ void load_pairs(uint32_t (&words)[4], uint32_t s_mine, int step) {
  constexpr int kRow = Shape::kRowBytes;
  if constexpr (Shape::kElement == 4) {
    uint32_t pair[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) ptx::load_shared(pair[i], s_mine + (8 * step + 4 * i) * kRow);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pair[i / 2][i % 2];
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = ptx::load_shared(s_mine + (16 * step + i / 2 * 8 + i % 2) * kRow);
  }
}

template <typename Shape>
__device__ __forceinline__ void write_pairs(uint32_t (&fragment)[4], const uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Shape::kElement == 4) {
      ptx::write_fragment_tf32(fragment[i], words[i]);
    } else {
      ptx::write_fragment_halves(fragment[i], words[i / 2 * 2], words[i / 2 * 2 + 1], i % 2 == 1);
    }
  }
}

template <typename Shape>
class RowStore {
  using Element = typename Shape::Element;
  static constexpr int kElement = Shape::kElement;
  static constexpr int kOfPass = turns_staged_channels(kElement);
  static constexpr int kBlocks = kOfPass / 8;  // of 8 channels
  static constexpr int kVectors = Shape::kStagePositions * kPatchTaps * kElement / 16;  // of a channel
  static constexpr int kTogether = 128 / kVectors;  // channels that threads store at a time
  static constexpr int kPitch = turns_staged_pitch(kElement);

 public:
  __device__ __forceinline__ RowStore(const Params& params, uint32_t s_staged, uint32_t s_bias, uint32_t s_turns,
                                      int32_t consumer)
      : s_staged_(s_staged), s_turns_(s_turns), consumer_(consumer) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, width = min(params.by_row.value, params.step);
    run_ = 2 * width * kElement;
    s_bias_ = s_bias + lane % 4 * 8;
#pragma unroll
    for (int row = 0; row < Shape::kRowBlocks; ++row) {
      const int32_t position = Shape::first_position() + row * kPatchPositions;
      int32_t column;
      const int32_t of_tile = params.whole_rows ? params.by_row(position, &column) : (column = position, 0);
      exists_[row] = position < params.step;
      s_place_[row] = s_staged + lane % 4 * 2 * kPitch + of_tile * 2 * run_ + column * 2 * kElement;
    }
  }

  __device__ __forceinline__ void store_tile(const typename Shape::Accumulators& sums, const Params& params, const Tile& tile,
                                             uint32_t parity) const {
    ptx::mbarrier_wait(s_turns_ + 8 * consumer_, parity);  // the other warpgroup has read its results
    const Vectors mine = vectors_of(params, tile);
#pragma unroll
    for (int pass = 0; pass < Shape::kChannels / kOfPass; ++pass) {
      const int32_t buffer = pass % 2 * kOfPass * kPitch;
      stage(sums, pass, buffer);
      ptx::named_barrier(1 + consumer_, 128);  // staged, and the buffer after this one has been read
#pragma unroll
      for (int k = 0; k < kOfPass; k += kTogether) {
        if (pass * kOfPass + k >= mine.channels) continue;
        uint32_t words[4];
        ptx::load_shared(words, mine.s_first + buffer + k * kPitch);
        *reinterpret_cast<uint4*>(mine.g_first + (pass * kOfPass + k) * params.result_stride[1] * kElement) =
            uint4{words[0], words[1], words[2], words[3]};
      }
    }
    pipeline::release(s_turns_ + 8 * (consumer_ ^ 1));
  }

 private:
  __device__ __forceinline__ void stage(const typename Shape::Accumulators& sums, int pass, int32_t buffer) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int j = pass * kBlocks + block;
      float bias[2];
      ptx::load_shared<0>(bias, s_bias_ + 8 * j * 4);
#pragma unroll
      for (int row = 0; row < Shape::kRowBlocks; ++row) {
        if (!exists_[row]) continue;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int tap_h = 0; tap_h < 2; ++tap_h) {
            Element both[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              const int column = (tap_h * 2 + k % 2) * (Shape::kChannels / 8) + j;  // of 8
              both[k] = element::to_element<Element>(
                  sums.r[row * Shape::kColumnBlocks + column / 16][column % 16 * 4 + k / 2 * 2 + i] + bias[i]);
            }
            uint32_t words[kElement];
            memcpy(words, both, sizeof(both));
            ptx::store_shared(s_place_[row] + buffer + (8 * block + i) * kPitch + tap_h * run_, words);
          }
        }
      }
    }
  }

  // What a thread stores: a vector of every so many channels.
  struct Vectors {
    int32_t channels;  // of the result, from the thread's first on; 0 where it has no such vector
    uint32_t s_first;
    char* g_first;
  };

  __device__ __forceinline__ Vectors vectors_of(const Params& params, const Tile& tile) const {
    const int32_t thread = static_cast<int32_t>(threadIdx.x) % 128;
    const int32_t of_channel = thread % kVectors * 16, channel = thread / kVectors;
    int32_t column, row, of_row = of_channel;
    int32_t image = params.by_rows(params.by_row(tile.begin, &column), &row);
    bool exists = of_channel < params.step * kPatchTaps * kElement;
    int32_t pair = 0;  // of the tile's rows of the result
    while (of_row >= 2 * run_) of_row -= 2 * run_, ++pair;
    if (params.whole_rows) {
      row += pair;
      while (row >= params.by_rows.value) row -= params.by_rows.value, ++image;
    }
    exists = exists && image < params.batch;
    const int32_t tap_h = of_row >= run_;
    const int32_t first = tile.channel_tile * Shape::kChannels + channel;
    Vectors mine;
    mine.channels = exists ? params.n_channels - first : 0;
    mine.s_first = s_staged_ + channel * kPitch + of_channel;
    mine.g_first =
        static_cast<char*>(params.result) +
        (image * params.result_stride[0] + (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1] +
         (2 * row + tap_h) * params.result_stride[2] + 2 * column) *
            kElement +
        (of_row - tap_h * run_);
    return mine;
  }

  uint32_t s_staged_, s_bias_, s_turns_;
  uint32_t s_place_[Shape::kRowBlocks];
  bool exists_[Shape::kRowBlocks];
  int32_t consumer_, run_;  // bytes of a row of the result
};

#endif

}  // namespace convt::patch_sm90a
