// Loads the stages of a CTA's tile to shared memory in copies of 16 bytes: the source's vectors that its positions
// read, zeros for taps outside the image, and the packed weights of its result channels.
#pragma once

#include <cstdint>

#include "portable/fragments.cuh"
#include "portable/layout.h"
#include "ptx/cp_async.cuh"

namespace convt::portable {

#ifdef CONVT_HAS_MMA

// The work of a CTA.
struct Tile {
  int32_t group;
  int32_t phase_h, phase_w;
  int32_t first_row;  // GEMM row
  int32_t first_column;  // result channel within the group
  Phase h, w;  // taps
  int32_t number, part;  // tile index, and split of K
  int32_t first_stage, num_stages;
};

__device__ __forceinline__ Tile tile_of_block(const Params& params, int32_t block_m, int32_t block_n) {
  Tile tile;
  int32_t digit;
  tile.part = params.by_tiles(static_cast<int32_t>(blockIdx.x), &tile.number);
  int32_t index = params.by_n_tiles(tile.number, &digit);
  tile.first_column = digit * block_n;
  index = params.by_phases(index, &digit);
  tile.phase_h = params.by_phases_w(digit, &tile.phase_w);
  tile.group = params.by_m_tiles(index, &digit);
  tile.first_row = digit * block_m;
  tile.h = make_phase(params.h, tile.phase_h);
  tile.w = make_phase(params.w, tile.phase_w);
  const int32_t stages = ceil_div(tile.h.num_taps * tile.w.num_taps * params.source.vectors, kPortableStageVectors);
  const int32_t of_part = ceil_div(stages, params.splits);
  tile.first_stage = min(stages, tile.part * of_part);
  tile.num_stages = min(stages - tile.first_stage, of_part);
  return tile;
}

// A position of the phase.
struct Position {
  int32_t image, h, w;
  bool exists;
};

__device__ __forceinline__ Position position_of_row(const Params& params, int32_t row) {
  Position position;
  const int32_t image_row = params.by_columns(row, &position.w);
  position.image = params.by_rows(image_row, &position.h);
  position.exists = row < params.num_rows;
  return position;
}

// A thread copies one vector of some rows and of some columns of every stage.
template <typename Element, int kBlockM, int kBlockN, int kThreads>
class StageLoader {
 public:
  __device__ __forceinline__ StageLoader(const Params& params, const Tile& tile) : params_(params), tile_(tile) {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    const int32_t first = thread / kPortableStageVectors;
    s_place_ = place_of_vector(first, thread % kPortableStageVectors);
    vector_ = tile.first_stage * kPortableStageVectors + thread % kPortableStageVectors;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const Position position = position_of_row(params, tile.first_row + first + i * kStep);
      constexpr int32_t kNowhere = -(1 << 30);  // far enough outside that no tap reads the image
      row_[i] = position.exists ? position.h * params.h.position_step + tile.h.first_shift : kNowhere;
      column_[i] = position.w * params.w.position_step + tile.w.first_shift;
      image_[i] = position.exists ? position.image : 0;
    }
    const int64_t phase = (int64_t{tile.group} * params.phases_h + tile.phase_h) * params.phases_w + tile.phase_w;
    const int32_t column = tile.first_column + first;
    const auto* g_weights = static_cast<const Element*>(params.g_weights);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      column_exists_[i] = column + i * kStep < params.n_channels;
      const int64_t channel = phase * params.n_channels + (column_exists_[i] ? column + i * kStep : 0);
      g_columns_[i] = g_weights + (channel * params.slot_vectors + vector_) * kVector;
    }
    point_to_tap();
  }

  // Loads the next stage to a slot with tiles at these addresses.
  __device__ __forceinline__ void load(uint32_t s_source, uint32_t s_weights) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      ptx::cp_async_or_zero<16>(s_source + s_place_ + i * kStep * kPortableRowBytes, g_rows_[i], row_exists_[i]);
      g_rows_[i] += kPortableStageVectors * kVector;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      ptx::cp_async_or_zero<16>(s_weights + s_place_ + i * kStep * kPortableRowBytes, g_columns_[i],
                                column_exists_[i] && tap_exists_);
      g_columns_[i] += kPortableStageVectors * kVector;
    }
    vector_ += kPortableStageVectors;
    if (vector_ >= params_.source.vectors) point_to_tap();
  }

 private:
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kStep = kThreads / kPortableStageVectors;  // rows between a thread's rows
  static constexpr int kRows = kBlockM / kStep, kColumns = kBlockN / kStep;
  static_assert(kBlockM % kStep == 0 && kBlockN % kStep == 0 && kStep % 8 == 0);

  // Vectors past a tap's last belong to the next tap. Missing rows point to the image's first pixel, so that all
  // addresses are inside the tensor.
  __device__ __forceinline__ void point_to_tap() {
    while (vector_ >= params_.source.vectors) {
      vector_ -= params_.source.vectors;
      if (++tap_w_ == tile_.w.num_taps) tap_w_ = 0, ++tap_h_;
    }
    tap_exists_ = tap_h_ < tile_.h.num_taps;
    const int32_t shift_h = tap_h_ * tile_.h.shift_step, shift_w = tap_w_ * tile_.w.shift_step;
    const auto* g_vectors = static_cast<const Element*>(params_.g_source) +
                            (int64_t{tile_.group} * params_.source.vectors + vector_) * kVector;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int32_t row = row_[i] - shift_h, column = column_[i] - shift_w;
      row_exists_[i] = tap_exists_ && static_cast<uint32_t>(row) < static_cast<uint32_t>(params_.source.rows) &&
                       static_cast<uint32_t>(column) < static_cast<uint32_t>(params_.source.columns);
      g_rows_[i] = g_vectors + image_[i] * params_.source.image_stride;
      if (row_exists_[i]) g_rows_[i] += row * params_.source.row_stride + column * params_.source.column_stride;
    }
  }

  const Params& params_;
  const Tile& tile_;
  int32_t row_[kRows], column_[kRows], image_[kRows];  // source coordinates that the first tap reads
  const Element *g_rows_[kRows], *g_columns_[kColumns];  // pointers of the next stage
  bool row_exists_[kRows], column_exists_[kColumns];
  bool tap_exists_;  // if false, this vector of the packed weights is not initialized
  int32_t tap_h_ = 0, tap_w_ = 0, vector_;
  uint32_t s_place_;
};

#endif

}  // namespace convt::portable
