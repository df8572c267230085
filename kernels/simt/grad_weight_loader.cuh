// Copies global memory to one stage of the gradient of the weight: a tile of input pixels and the window of grad_output
// that its taps read. Channels are innermost and converted to the accumulator's type. Elements outside a tensor are not
// loaded, because the mainloop never multiplies them.
#pragma once

#include "problem/problem.h"
#include "simt/layout.h"
#include "simt/loader.cuh"
#include "tiling/window.cuh"

namespace convt::simt {

using tiling::window_coordinate;

// Copies channels first, first + step, ... below `num` of one position. g_step is the stride between channels in
// elements.
template <typename Traits>
__device__ __forceinline__ void load_position(uint32_t s_position, const typename Traits::Element* g_position,
                                              int32_t first, int32_t step, int32_t num, int64_t g_step) {
  using Element = typename Traits::Element;
  using Accumulator = typename Traits::Accumulator;
  const Element* g_source = g_position + first * g_step;
  uint32_t s_destination = s_position + first * sizeof(Accumulator);
  const int64_t g_next = step * g_step;
  if constexpr (std::is_same_v<Element, Accumulator>) {
#pragma unroll 4
    for (int32_t channel = first; channel < num; channel += step) {
      ptx::cp_async<sizeof(Element)>(s_destination, g_source);
      g_source += g_next;
      s_destination += step * sizeof(Accumulator);
    }
  } else {
    // Conversion needs registers. Loads are issued in batches, so that their latencies overlap.
    constexpr int kBatch = 8;
    for (int32_t channel = first; channel < num; channel += kBatch * step) {
      Element r_values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (channel + i * step < num) r_values[i] = g_source[i * g_next];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (channel + i * step < num) {
          ptx::store_shared(s_destination + i * step * sizeof(Accumulator),
                            __float_as_uint(to_accumulator(r_values[i])));
        }
      }
      g_source += kBatch * g_next;
      s_destination += kBatch * step * sizeof(Accumulator);
    }
  }
}

// Tensor coordinates of a window position.
struct Place {
  int32_t h;
  int32_t w;
};

// Loads `num_positions` positions of `num_channels` channels of one image, [position][pitch]. place_of(position)
// returns a Place. g_stride contains the strides of channels, rows and columns.
template <typename Traits, typename PlaceOf>
__device__ __forceinline__ void load_window(const typename Traits::Element* g_image, const int64_t* g_stride,
                                            int32_t h_size, int32_t w_size, int32_t num_positions, int32_t num_channels,
                                            int32_t pitch, uint32_t s_window, PlaceOf place_of) {
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  // A warp loads 8 neighbouring positions x 4 channels at a time, or one position x 32 channels if channels are
  // contiguous.
  const bool channels_last = g_stride[0] == 1 && num_channels > 1;
  const int32_t width_log2 = channels_last ? 0 : 3;
  const int32_t lane = threadIdx.x % 32, first_channel = lane >> width_log2, channel_step = 32 >> width_log2;
  const int32_t step = static_cast<int32_t>(blockDim.x) / 32 << width_log2;
  int32_t position = (static_cast<int32_t>(threadIdx.x) / 32 << width_log2) + (lane & ((1 << width_log2) - 1));
  for (; position < num_positions; position += step) {
    const Place place = place_of(position);
    if (static_cast<uint32_t>(place.h) >= static_cast<uint32_t>(h_size)) continue;
    if (static_cast<uint32_t>(place.w) >= static_cast<uint32_t>(w_size)) continue;
    load_position<Traits>(s_window + position * pitch * kBytes, g_image + place.h * g_stride[1] + place.w * g_stride[2],
                          first_channel, channel_step, num_channels, g_stride[0]);
  }
}

}  // namespace convt::simt
