// Accumulators -> bias -> rows of the result, through shared memory. In NCHW a thread holds positions of one W phase,
// whose columns are interleaved with those of the other phases. Shared memory collects all W phases, and whole rows of
// a channel are stored. In channels_last, unaligned pixels are stored channel by channel.
#pragma once

#include "nhwc_sm90a/epilogue.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

// Stores `count` channels of a group from `first` on, with rows at `s_rows`. Called by all consumer threads. A warp
// stores contiguous places of a fourth of the channels, kNeighbours places per thread.
template <typename Element, int kNeighbours>
__device__ __forceinline__ void store_rows(const Params& params, const Tile& tile, int32_t first, int32_t count,
                                           int32_t warp, uint32_t s_rows) {
  constexpr int kParts = 4, kBytes = kNeighbours * static_cast<int>(sizeof(Element));
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t places = params.by_run.value * params.tile_h * params.tile_n;
  const int32_t of_part = count / kParts, items = (places + 32 * kNeighbours - 1) / (32 * kNeighbours) * kParts;
#pragma unroll 1
  for (int32_t item = warp; item < items; item += kConsumerThreads / 32) {
    const int32_t part = item % kParts, place = (item / kParts * 32 + lane) * kNeighbours;
    int32_t column, row;
    const int32_t image = tile.image + params.by_tile_h(params.by_run(place, &column), &row);
    const int64_t offset = result_at(params, tile, image, (tile.row + row) * params.scale_h + tile.phase_h,
                                     tile.column * params.scale_w + column);
    if (place >= places || offset < 0) continue;
    const int32_t channel = first + part * of_part;
    auto* g = static_cast<Element*>(params.result) + offset + channel * params.result_stride[1];
    uint32_t s = s_rows + (part * of_part * params.row_pitch + place) * static_cast<int32_t>(sizeof(Element));
    const uint32_t step = params.row_pitch * static_cast<int32_t>(sizeof(Element));
    const int32_t left = min(of_part, params.n_channels - channel);
#pragma unroll 8
    for (int32_t i = 0; i < left; ++i, g += params.result_stride[1], s += step) {
      if constexpr (kBytes == 8) {
        uint32_t words[2];
        ptx::load_shared(words, s);
        *reinterpret_cast<uint2*>(g) = uint2{words[0], words[1]};
      } else if constexpr (kBytes == 4) {
        *reinterpret_cast<uint32_t*>(g) = ptx::load_shared(s);
      } else {
        *reinterpret_cast<uint16_t*>(g) = static_cast<uint16_t>(ptx::load_shared_16(s));
      }
    }
  }
}

// Stores kNhwcRowChannels channels of each pixel. A warp handles 32 positions, as many at a time as fit its lanes.
template <typename Element>
__device__ __forceinline__ void store_pixels(const Params& params, const Tile& tile, int32_t first, int32_t warp,
                                             uint32_t s_rows) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t positions = params.tile_w * params.tile_h * params.tile_n;
  const int32_t together = 32 >> params.pixel_lanes_log2, place = lane >> params.pixel_lanes_log2;
  const int32_t channel = lane & ((1 << params.pixel_lanes_log2) - 1);
  const int32_t step = together * params.row_pitch * static_cast<int32_t>(sizeof(Element));
#pragma unroll 1
  for (int32_t position = 32 * warp; position < positions; position += kConsumerThreads) {
    const int64_t own = result_of_position(params, tile, position + lane);
    uint32_t s = s_rows + ((position + place) * params.row_pitch + channel) * static_cast<int32_t>(sizeof(Element));
#pragma unroll 4
    for (int32_t begin = 0; begin < 32; begin += together, s += step) {
      const int64_t offset = __shfl_sync(0xffffffffu, own, begin + place);
      if (offset < 0 || first + channel >= params.n_channels) continue;
      auto* g = static_cast<Element*>(params.result) + offset + first + channel;
      if constexpr (sizeof(Element) == 4) {
        *reinterpret_cast<uint32_t*>(g) = ptx::load_shared(s);
      } else {
        *reinterpret_cast<uint16_t*>(g) = static_cast<uint16_t>(ptx::load_shared_16(s));
      }
    }
  }
}

// Called by all consumer threads. `bias` is bias_of_thread().
template <typename Shape, bool kSteps>
__device__ __forceinline__ void put_rows(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                         int32_t warp, float bias, uint32_t s_rows, uint32_t s_bias) {
  using Element = typename Shape::Element;
  constexpr int kInterleaved = nhwc_interleaved(Shape::kElement);
  constexpr int kCount = 2 * kInterleaved;  // contiguous channels per thread
  constexpr int kRuns = kNhwcRowChannels / (4 * kCount);  // runs per slice
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const bool whole = params.interleaved_phases_w.value > 1;
  const int32_t positions = params.tile_w * params.tile_h * params.tile_n;
  const int32_t channel_step = params.channels_last ? 1 : params.row_pitch;
  const int32_t place_step = params.channels_last ? params.row_pitch : 1;
  const Offsets<Shape> offsets(params, tile, warp);  // unused without steps, and then not computed
#pragma unroll
  for (int slice = 0; slice < Shape::kN / kNhwcRowChannels; ++slice) {
    if (!whole || (slice == 0 && tile.phase_w == 0)) {
      ptx::named_barrier(1, kConsumerThreads);  // the buffer's previous contents are stored
      if (slice == 0) {
        stage_bias<Shape>(bias, s_bias);
        ptx::named_barrier(1, kConsumerThreads);
      }
    }
    const uint32_t s_slice = s_rows + (whole ? slice * kNhwcRowChannels * params.row_pitch : 0) * Shape::kElement;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int m = slice * kRuns + run;
      const int32_t own = run * 4 * kCount + lane % 4 * kCount;  // first channel, within the slice
      float bias_of[kCount];
      load_bias(bias_of, s_bias, slice * kNhwcRowChannels + own);
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        float values[2 * kCount];
        const int32_t channel = tile.channel_tile * Shape::kN + slice * kNhwcRowChannels + own;
        finish_block<Shape, kSteps>(acc, params, block, m * kCount, tile.group, channel, bias_of, offsets, values);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int32_t position = positions_before<Shape>(warp, block) + lane / 4 + 8 * h;
          if (position >= positions) continue;
          const int32_t place = params.channels_last ? position : position * params.scale_w + tile.phase_w;
          const uint32_t s = s_slice + (own * channel_step + place * place_step) * Shape::kElement;
#pragma unroll
          for (int k = 0; k < kCount; ++k) {
            const Element element = element::to_element<Element>(values[h * kCount + k]);
            const uint32_t s_element = s + k * channel_step * Shape::kElement;
            if constexpr (sizeof(Element) == 4) {
              ptx::store_shared(s_element, __float_as_uint(element));
            } else {
              uint16_t bits;
              memcpy(&bits, &element, sizeof(bits));
              ptx::store_shared_16(s_element, bits);
            }
          }
        }
      }
    }
    const bool stores =
        !whole || (slice + 1 == Shape::kN / kNhwcRowChannels && tile.phase_w + 1 == params.interleaved_phases_w.value);
    if (!stores) continue;
    ptx::named_barrier(1, kConsumerThreads);  // the slice is complete
    const int32_t first = tile.channel_tile * Shape::kN + (whole ? 0 : slice * kNhwcRowChannels);
    const int32_t count = whole ? Shape::kN : kNhwcRowChannels;
    if (params.channels_last) {
      store_pixels<Element>(params, tile, first, warp, s_rows);
    } else if (params.pairs) {
      store_rows<Element, 2>(params, tile, first, count, warp, s_rows);
    } else {
      store_rows<Element, 1>(params, tile, first, count, warp, s_rows);
    }
  }
}

#endif

}  // namespace convt::nhwc_sm90a
