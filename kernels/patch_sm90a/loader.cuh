// Producers of the patch kernel: source stages in the layout of global memory, and packed blocks of weights. Elements
// outside the source are zero, because they must not contribute to sums.
#pragma once

#include "patch_sm90a/tile.cuh"
#include "pipeline/copy_vector.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::copy_vector;
using pipeline::producer_arrive;
using pipeline::Ring;

// Calls `load` with params.source_vector as a compile-time constant.
template <int kElement, typename Load>
__device__ __forceinline__ void with_copy_bytes(const Params& params, const Load& load) {
  if (params.source_vector == 16) {
    load(std::integral_constant<int, 16>());
  } else if (params.source_vector == 8) {
    load(std::integral_constant<int, 8>());
  } else if (params.source_vector == 4) {
    load(std::integral_constant<int, 4>());
  } else if constexpr (kElement == 2) {
    load(std::integral_constant<int, 2>());
  }
}

// How lanes copy a row of a stage of kOfRow vectors, and how many rows a warp copies at once.
template <int kOfRow>
struct RowCopy {
  static constexpr int kLanes = kOfRow < 32 ? kOfRow : 32;  // per row
  static constexpr int kVectors = kOfRow / kLanes;  // per lane
  static constexpr int kRows = 32 / kLanes;
  static constexpr int kStep = kPatchLoaderWarps * kRows;  // rows of all loading warps

  __device__ __forceinline__ static int32_t row(int32_t thread) { return thread / 32 * kRows + thread % 32 / kLanes; }
  __device__ __forceinline__ static int32_t lane(int32_t thread) { return thread % kLanes; }
};

// The vectors that a lane copies in every stage of a tile, starting at the lane's first channel.
template <typename Shape, typename Copy, int kOfVector>
struct PlaneVectors {
  using Element = typename Shape::Element;
  const Element* g[Copy::kVectors];
  bool exists[Copy::kVectors];

  __device__ __forceinline__ PlaneVectors(const Params& params, const Tile& tile, int32_t begin, int32_t row,
                                          int32_t lane) {
#pragma unroll
    for (int vector = 0; vector < Copy::kVectors; ++vector) {
      const int32_t position = begin + (vector * Copy::kLanes + lane) * kOfVector;
      exists[vector] = position < params.positions;
      int32_t place;
      const int32_t image = params.by_image(exists[vector] ? position : 0, &place);
      g[vector] = static_cast<const Element*>(params.source) +
                  image_offset(params, image, params.source_batch, params.source_stride[0]) + place +
                  (int64_t{tile.group} * params.k_channels + row) * params.source_stride[1];
    }
  }
};

// NCHW: rows of a stage are channels.
template <typename Shape, int kBytes>
__device__ __forceinline__ void load_planes(const Params& params, uint32_t s_source, uint32_t s_barriers,
                                            int32_t thread) {
  constexpr int kOfVector = kBytes / Shape::kElement;
  using Copy = RowCopy<Shape::kStagePositions / kOfVector>;
  const int32_t row = Copy::row(thread), lane = Copy::lane(thread);
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = first_tile<Shape>(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of<Shape>(params, number);
    PlaneVectors<Shape, Copy, kOfVector> vectors(params, tile, tile.begin, row, lane);
    int32_t left = params.k_channels - row;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, left -= Shape::kStageChannels) {
      const uint32_t s_row = s_source + ring.slot() * Shape::kStageBytes + row * Shape::kRowBytes + lane * kBytes;
      ring.wait_empty();  // the consumers have released the slot
#pragma unroll 4
      for (int32_t step = 0; step < Shape::kStageRows - row; step += Copy::kStep) {
#pragma unroll
        for (int vector = 0; vector < Copy::kVectors; ++vector) {
          const bool copy = vectors.exists[vector] && step < left;
          const auto* g = vectors.g[vector] + (copy ? step * params.source_stride[1] : 0);
          copy_vector<kBytes>(s_row + step * Shape::kRowBytes + vector * Copy::kLanes * kBytes, g, copy);
        }
      }
      producer_arrive<kBytes>(ring);
      ring.advance();
#pragma unroll
      for (auto& g : vectors.g) g += Shape::kStageChannels * params.source_stride[1];
    }
  }
}

// channels_last: rows of a stage are positions.
template <typename Shape, int kBytes>
__device__ __forceinline__ void load_channels(const Params& params, uint32_t s_source, uint32_t s_barriers,
                                              int32_t thread) {
  using Element = typename Shape::Element;
  constexpr int kOfVector = kBytes / Shape::kElement;
  using Copy = RowCopy<128 / kBytes>;
  const int32_t row = Copy::row(thread), channel = Copy::lane(thread) * kOfVector;
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = first_tile<Shape>(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of<Shape>(params, number);
    const int32_t rows = params.positions - tile.begin - row;
    const Element* g_row = static_cast<const Element*>(params.source) +
                           (int64_t{tile.begin} + row) * params.source_stride[3] +
                           int64_t{tile.group} * params.k_channels + channel;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, g_row += Shape::kStageChannels) {
      const uint32_t s_row =
          s_source + ring.slot() * Shape::kStageBytes + row * Shape::kRowBytes + channel * Shape::kElement;
      const int32_t left = params.k_channels - chunk * Shape::kStageChannels - channel;
      ring.wait_empty();
#pragma unroll 4
      for (int32_t step = 0; step < Shape::kStageRows - row; step += Copy::kStep) {
#pragma unroll
        for (int vector = 0; vector < Copy::kVectors; ++vector) {
          const int32_t further = vector * Copy::kLanes * kOfVector;  // channels
          const bool copy = further < left && step < rows;
          const Element* g =
              copy ? g_row + step * params.source_stride[3] + further : static_cast<const Element*>(params.source);
          copy_vector<kBytes>(s_row + step * Shape::kRowBytes + further * Shape::kElement, g, copy);
        }
      }
      producer_arrive<kBytes>(ring);
      ring.advance();
    }
  }
}

// Element offset of a position's patch in the source's first channel.
__device__ __forceinline__ int64_t source_patch(const Params& params, int32_t position) {
  int32_t place, column;
  const int32_t image = params.by_image(position, &place);
  const int32_t row = params.by_row(place, &column);
  return image_offset(params, image, params.source_batch, params.source_stride[0]) +
         row * params.by_tap_rows.value * params.source_stride[2] + column * params.patch_w;
}

// First elements of a stage in the patches: channel, row and column.
struct StagePatch {
  int32_t channel, row, column;

  template <typename Shape>
  __device__ __forceinline__ static StagePatch of(const Params& params, int32_t stage) {
    const int32_t columns = params.patch_w / kGatherColumns, rows = params.patch_h / kGatherRows;
    const int32_t of_patch = stage % (columns * rows);
    return {stage / (columns * rows) * Shape::kGatherChannels, of_patch / columns * kGatherRows,
            of_patch % columns * kGatherColumns};
  }
  template <typename Shape>
  __device__ __forceinline__ void advance(const Params& params) {
    column += kGatherColumns;
    if (column < params.patch_w) return;
    column = 0;
    row += kGatherRows;
    if (row < params.patch_h) return;
    row = 0;
    channel += Shape::kGatherChannels;
  }
};

// Gradient of the input: each position reads its patch. A stage contains two columns of each of two rows of the patch.
// The stage's rows are both patch rows of one channel, then those of the next. A loading warp has few cycles per stage,
// so stage-invariant values are computed once per tile, or once for all tiles.
template <typename Shape, int kBytes>
__device__ __forceinline__ void gather_planes(const Params& params, const Stages& stages, uint32_t s_source,
                                              uint32_t s_barriers, int32_t thread) {
  constexpr int kOfVector = kBytes / Shape::kElement;
  using Copy = RowCopy<kGatherColumns * Shape::kStagePositions / kOfVector>;
  constexpr int kTogether = kOfVector > kGatherColumns ? kOfVector / kGatherColumns : 1;  // positions
  constexpr int kVectors = Copy::kVectors, kRows = kGatherRows;
  constexpr int kSteps = (Shape::kStageRows + Copy::kStep - 1) / Copy::kStep;
  constexpr bool kKeeps = kBytes > 2 && kVectors <= 2 * Shape::kConsumers;  // more need too many registers
  constexpr int kKept = kKeeps ? kVectors : 1;
  const int32_t row = Copy::row(thread), lane = Copy::lane(thread);
  const int64_t channel_bytes = params.source_stride[1] * Shape::kElement;
  const int64_t line_bytes = params.source_stride[2] * Shape::kElement;
  auto offset_of_row = [&](int32_t row) { return row / kRows * channel_bytes + row % kRows * line_bytes; };
  // Byte steps to a warp's next row, and to the row after it.
  const int64_t to_next = offset_of_row(row + Copy::kStep) - offset_of_row(row);
  const int64_t to_second = 2 * Copy::kStep / kRows * channel_bytes;
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = first_tile<Shape>(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of<Shape>(params, number);
    const char* g_group =
        static_cast<const char*>(params.source) + int64_t{tile.group} * params.k_channels * channel_bytes;
    // Positions past the end repeat the last vector. Their results are not stored.
    auto find = [&](int vector) {
      const int32_t element = (vector * Copy::kLanes + lane) * kOfVector;
      const int32_t position = min(tile.begin + element / kGatherColumns, params.positions - kTogether);
      return g_group + (source_patch(params, position) + element % kGatherColumns) * Shape::kElement +
             offset_of_row(row);
    };
    const char* g_kept[kKept];
    if constexpr (kKeeps) {
#pragma unroll
      for (int vector = 0; vector < kVectors; ++vector) g_kept[vector] = find(vector);
    }
    StagePatch patch = StagePatch::of<Shape>(params, stages.begin);
    for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
      const uint32_t s_row = s_source + ring.slot() * Shape::kStageBytes + row * Shape::kRowBytes;
      const int64_t begin = patch.channel * channel_bytes + patch.column * Shape::kElement +
                            tap_row_offset(params, patch.row, params.source_stride[2]) * Shape::kElement;
      const int32_t channels = params.k_channels - patch.channel;
      ring.wait_empty();  // the consumers have released the slot
      if (kKeeps && channels >= Shape::kGatherChannels) {
#pragma unroll
        for (int vector = 0; vector < kKept; ++vector) {
          const char* g_vector = g_kept[vector] + begin;
          const uint32_t s_vector = s_row + (vector * Copy::kLanes + lane) * kBytes;
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            if ((step + 1) * Copy::kStep > Shape::kStageRows && row + step * Copy::kStep >= Shape::kStageRows) break;
            copy_vector<kBytes>(s_vector + step * Copy::kStep * Shape::kRowBytes,
                                step % 2 == 0 ? g_vector : g_vector + to_next);
            if (step % 2 == 1) g_vector += to_second;
          }
        }
      } else {
#pragma unroll 1
        for (int vector = 0; vector < kVectors; ++vector) {
          const char* g_vector = find(vector) + begin;
          const uint32_t s_vector = s_row + (vector * Copy::kLanes + lane) * kBytes;
#pragma unroll 1
          for (int32_t step = 0; step < Shape::kStageRows - row; step += Copy::kStep) {
            const bool copy = (row + step) / kRows < channels;
            copy_vector<kBytes>(s_vector + step * Shape::kRowBytes, copy ? g_vector : params.source, copy);
            g_vector += step / Copy::kStep % 2 == 0 ? to_next : to_second - to_next;
          }
        }
      }
      producer_arrive<kBytes>(ring);
      ring.advance();
      patch.advance<Shape>(params);
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void load_source(const Params& params, const Stages& stages, uint32_t s_source,
                                            uint32_t s_barriers, int32_t thread) {
  with_copy_bytes<Shape::kElement>(params, [&](auto bytes) {
    constexpr int kBytes = decltype(bytes)::value;
    if constexpr (Shape::kGathers) {
      gather_planes<Shape, kBytes>(params, stages, s_source, s_barriers, thread);
    } else if constexpr (Shape::kByChannels) {
      load_channels<Shape, kBytes>(params, s_source, s_barriers, thread);
    } else {
      load_planes<Shape, kBytes>(params, s_source, s_barriers, thread);
    }
  });
}

// Byte offset of a block of a tile's weights from its first block. Blocks are 64 channels each if the kernel gathers,
// otherwise two rows of two taps, a row of four, or four rows of one.
template <typename Shape>
__device__ __forceinline__ int64_t block_place(const Params& params, int32_t block) {
  if constexpr (Shape::kGathers) return block * params.packed_tile_step;
  if (params.kernel_w == 1) return block * params.packed_row_step;
  if (params.kernel_w != 2) return block * Shape::kBlockBytes;
  return block / 2 * params.packed_row_step + block % 2 * Shape::kBlockBytes;
}

// One thread loads the weights of all the CTA's tiles.
template <typename Shape>
__device__ __forceinline__ void load_weights(const Params& params, const Stages& stages, uint32_t s_weights,
                                             uint32_t s_barriers) {
  const int32_t chunk_step = (Shape::kGathers ? 1 : params.kernel_w) * Shape::kBlockBytes;
  Ring ring(s_barriers, params.weight_slots);
  for (int32_t number = first_tile<Shape>(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of<Shape>(params, number);
    const int32_t first = tile.channel_tile * (Shape::kGathers ? Shape::kBlocks : 1);
    const int32_t blocks = Shape::kGathers ? min(Shape::kBlocks, params.channel_blocks - first) : Shape::kBlocks;
    const char* g_chunk = static_cast<const char*>(params.packed) +
                          (int64_t{tile.group} * params.channel_blocks + first) * params.packed_tile_step +
                          tile.tap_h * params.packed_row_step + tile.tap_w * Shape::kBlockBytes +
                          int64_t{stages.begin} * chunk_step;
    for (int32_t chunk = stages.begin; chunk < stages.end; ++chunk, g_chunk += chunk_step) {
      for (int32_t begin = 0; begin < Shape::kBlocks; begin += Shape::kSlotBlocks) {
        const int32_t end = min(begin + Shape::kSlotBlocks, blocks);
        ring.wait_empty();  // the consumers have released the slot
        ptx::mbarrier_expect(ring.full(), max(end - begin, 0) * Shape::kBlockBytes);
        uint32_t s_block = s_weights + ring.slot() * Shape::kSlotBlocks * Shape::kBlockBytes;
        for (int32_t block = begin; block < end; ++block, s_block += Shape::kBlockBytes) {
          ptx::bulk_copy(s_block, g_chunk + block_place<Shape>(params, block), Shape::kBlockBytes, ring.full());
        }
        ring.advance();
      }
    }
    if (params.resident) return;
  }
}

#endif

}  // namespace convt::patch_sm90a
