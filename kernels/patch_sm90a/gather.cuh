// The source of the patch engine's gathering kernels, grad_output in NCHW: every position reads its patch, of which a
// stage has two columns of each of two rows, or four columns of one.
#pragma once

#include "patch_sm90a/copy.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// Where a position's patch begins in the source's first channel, in elements.
__device__ __forceinline__ int64_t source_patch(const Params& params, int32_t position) {
  int32_t place, column;
  const int32_t image = params.by_image(position, &place);
  const int32_t row = params.by_row(place, &column);
  return image * params.source_stride[0] + row * params.patch_h * params.source_stride[2] + column * params.patch_w;
}

// Where an element of a row of a stage lies in it, in bytes.
template <typename Shape>
__device__ __forceinline__ int32_t place_in_row(int32_t element) {
  if constexpr (Shape::kForm == PatchForm::kGatherQuads && Shape::Traits::kFloat32) {
    const int32_t position = element / 4;
    return position % 2 * kQuadsOddBegin<Shape> + position / 2 * 16 + element % 4 * 4;
  }
  return element * Shape::kElement;
}

// The part of the patches that a stage has.
struct PatchPart {
  int32_t channel, row, column;

  template <typename Shape>
  __device__ __forceinline__ static PatchPart of(const Params& params, int32_t stage) {
    const int32_t columns = params.patch_w / Shape::kGatherColumns, rows = params.patch_h / Shape::kGatherRows;
    const int32_t of_patch = stage % (columns * rows);
    return {stage / (columns * rows) * Shape::kGatherChannels, of_patch / columns * Shape::kGatherRows,
            of_patch % columns * Shape::kGatherColumns};
  }
  template <typename Shape>
  __device__ __forceinline__ void advance(const Params& params) {
    column += Shape::kGatherColumns;
    if (column < params.patch_w) return;
    column = 0;
    row += Shape::kGatherRows;
    if (row < params.patch_h) return;
    row = 0;
    channel += Shape::kGatherChannels;
  }
};

// Rows of a stage are channels, or both rows of the patches of one channel, then of the next. A loading warp has few
// cycles for a stage: what does not change from stage to stage is found once for a tile, or once for all.
template <typename Shape, int kBytes>
__device__ __forceinline__ void gather_planes(const Params& params, const Stages& stages, uint32_t s_source,
                                              uint32_t s_barriers, int32_t thread) {
  constexpr int kOfVector = kBytes / Shape::kElement;
  using Copy = RowCopy<kBytes, Shape::kGatherColumns * Shape::kStagePositions / kOfVector>;
  constexpr int kTogether = kOfVector > Shape::kGatherColumns ? kOfVector / Shape::kGatherColumns : 1;  // positions
  constexpr int kTerms = Copy::kTerms, kRows = Shape::kGatherRows;
  constexpr int kSteps = (Shape::kStageRows + Copy::kStep - 1) / Copy::kStep;
  constexpr bool kKeeps = kBytes > 2 && kTerms <= 2 * Shape::kConsumers;  // more want registers
  constexpr int kKept = kKeeps ? kTerms : 1;
  const int32_t row = Copy::row(thread), lane = Copy::lane(thread);
  const int64_t channel_bytes = params.source_stride[1] * Shape::kElement;
  const int64_t line_bytes = params.source_stride[2] * Shape::kElement;
  auto offset_of_row = [&](int32_t row) { return row / kRows * channel_bytes + row % kRows * line_bytes; };
  // A warp's rows, one and the next but one.
  const int64_t to_next = offset_of_row(row + Copy::kStep) - offset_of_row(row);
  const int64_t to_second = 2 * Copy::kStep / kRows * channel_bytes;
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step(params)) {
    const Tile tile = tile_of<Shape>(params, number);
    const char* g_group =
        static_cast<const char*>(params.source) + int64_t{tile.group} * params.k_channels * channel_bytes;
    // Positions beyond the last one are no results: these repeat the last vector.
    auto find = [&](int part) {
      const int32_t element = (part * Copy::kLanes + lane) * kOfVector;
      const int32_t position = min(tile.begin + element / Shape::kGatherColumns, params.positions - kTogether);
      return g_group + (source_patch(params, position) + element % Shape::kGatherColumns) * Shape::kElement +
             offset_of_row(row);
    };
    const char* g_kept[kKept];
    if constexpr (kKeeps) {
#pragma unroll
      for (int part = 0; part < kTerms; ++part) g_kept[part] = find(part);
    }
    PatchPart patch = PatchPart::of<Shape>(params, stages.begin);
    for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
      const uint32_t s_row = s_source + ring.slot() * Shape::kStageBytes + row * Shape::kRowBytes;
      const int64_t begin = patch.channel * channel_bytes + patch.row * line_bytes + patch.column * Shape::kElement;
      const int32_t channels = params.k_channels - patch.channel;
      ring.wait_empty();  // the consumers have read what was here
      if (kKeeps && channels >= Shape::kGatherChannels) {
#pragma unroll
        for (int part = 0; part < kKept; ++part) {
          const char* g_part = g_kept[part] + begin;
          const uint32_t s_part = s_row + place_in_row<Shape>((part * Copy::kLanes + lane) * kOfVector);
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            if ((step + 1) * Copy::kStep > Shape::kStageRows && row + step * Copy::kStep >= Shape::kStageRows) break;
            copy_vector<kBytes>(s_part + step * Copy::kStep * Shape::kRowBytes,
                                step % 2 == 0 ? g_part : g_part + to_next);
            if (step % 2 == 1) g_part += to_second;
          }
        }
      } else {
#pragma unroll 1
        for (int part = 0; part < kTerms; ++part) {
          const char* g_part = find(part) + begin;
          const uint32_t s_part = s_row + place_in_row<Shape>((part * Copy::kLanes + lane) * kOfVector);
#pragma unroll 1
          for (int32_t step = 0; step < Shape::kStageRows - row; step += Copy::kStep) {
            const bool copy = (row + step) / kRows < channels;
            copy_vector<kBytes>(s_part + step * Shape::kRowBytes, copy ? g_part : params.source, copy);
            g_part += step / Copy::kStep % 2 == 0 ? to_next : to_second - to_next;
          }
        }
      }
      announce<kBytes>(ring);
      ring.advance();
      patch.advance<Shape>(params);
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
