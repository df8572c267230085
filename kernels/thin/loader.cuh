// Copies global memory to shared memory: the source tile unconverted, the weights converted to float32. Source elements
// outside the image are not loaded, because the mainloop never multiplies them.
#pragma once

#include "ptx/cp_async.cuh"
#include "thin/tile.cuh"

namespace convt::thin {

template <typename Element>
__device__ __forceinline__ void copy_element(Element* s_destination, const Element* g_source) {
  if constexpr (sizeof(Element) == 4) {
    ptx::cp_async<4>(ptx::shared_address(s_destination), g_source);
  } else {
    *s_destination = *g_source;
  }
}

// Loads channels ci .. ci + num_ci - 1 of every group of the pass, at the tile's rows and columns.
template <typename Element>
__device__ __forceinline__ void load_source(const Params& params, const Pass& pass, const Tile& tile, int32_t ci,
                                            Element* s_source) {
  const int32_t num_ci = min(params.chunk_ci, params.group_ci - ci);
  const int32_t channels = pass.num_groups * num_ci;  // with several groups: all channels of each
  const int32_t first_row = tile.q_h + params.row_offset, first_column = tile.q_w + params.column_offset;
  const auto* g_source = static_cast<const Element*>(params.source) + tile.image * params.source_stride[0] +
                         (int64_t{pass.group} * params.group_ci + ci) * params.source_stride[1];
  const int32_t lanes = 1 << params.load_lanes_log2;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) & (lanes - 1);
  const int32_t unit_begin = static_cast<int32_t>(threadIdx.x) >> params.load_lanes_log2;
  const int32_t unit_step = static_cast<int32_t>(blockDim.x) >> params.load_lanes_log2;

  if (params.load_mode == ThinLoad::kChannels) {
#pragma unroll 1
    for (int32_t unit = unit_begin; unit < params.rows * params.columns; unit += unit_step) {
      int32_t column;
      const int32_t row = params.by_columns(unit, &column);
      const int32_t h = first_row + row, w = first_column + column;
      if (h < 0 || h >= params.h.in || w < 0 || w >= params.w.in) continue;
      const Element* g_pixel = g_source + h * params.source_stride[2] + w * params.source_stride[3];
      Element* s_pixel = s_source + row * params.pitch + column;
#pragma unroll 2
      for (int32_t c = lane; c < channels; c += lanes) {
        copy_element(s_pixel + c * params.channel_pitch, g_pixel + c * params.source_stride[1]);
      }
    }
    return;
  }
  // Loops over columns, then rows, then channels, so that a channel costs little more than its copies.
  const int32_t channel_begin = unit_begin & ((1 << params.load_channels_log2) - 1);
  const int32_t channel_step = 1 << params.load_channels_log2;
  const int32_t row_begin = unit_begin >> params.load_channels_log2, row_step = unit_step >> params.load_channels_log2;
  if (row_begin >= row_step) return;  // surplus threads, if the thread count is not a power of two
  const int64_t g_step = channel_step * params.source_stride[1];
  const int32_t s_step = channel_step * params.channel_pitch;
  const int32_t elems = params.vector_bytes / static_cast<int32_t>(sizeof(Element));
  const Element* g_first = g_source + channel_begin * params.source_stride[1];
#pragma unroll 1
  for (int32_t column = lane * elems; column < params.columns; column += lanes * elems) {
    const int32_t w = first_column + column;
    if (w < 0 || w >= params.w.in) continue;
    const Element* g_column = g_first + w * params.source_stride[3];
    Element* s_column = s_source + channel_begin * params.channel_pitch + column;
#pragma unroll 1
    for (int32_t row = row_begin; row < params.rows; row += row_step) {
      const int32_t h = first_row + row;
      if (h < 0 || h >= params.h.in) continue;
      const Element* g_from = g_column + h * params.source_stride[2];
      Element* s_to = s_column + row * params.pitch;
      if (params.load_mode == ThinLoad::kElements) {
#pragma unroll 4
        for (int32_t channel = channel_begin; channel < channels; channel += channel_step) {
          copy_element(s_to, g_from);
          g_from += g_step, s_to += s_step;
        }
        continue;
      }
      uint32_t s_address = ptx::shared_address(s_to);
      const uint32_t address_step = s_step * static_cast<uint32_t>(sizeof(Element));
      if (params.vector_bytes == 16) {
#pragma unroll 4
        for (int32_t channel = channel_begin; channel < channels; channel += channel_step) {
          ptx::cp_async<16>(s_address, g_from);
          g_from += g_step, s_address += address_step;
        }
      } else if (params.vector_bytes == 8) {
#pragma unroll 1
        for (int32_t channel = channel_begin; channel < channels; channel += channel_step) {
          ptx::cp_async<8>(s_address, g_from);
          g_from += g_step, s_address += address_step;
        }
      } else {
#pragma unroll 1
        for (int32_t channel = channel_begin; channel < channels; channel += channel_step) {
          ptx::cp_async<4>(s_address, g_from);
          g_from += g_step, s_address += address_step;
        }
      }
    }
  }
}

// Loads all weights of the pass: [group][ci][tap][virtual outputs], 0 if a virtual output lacks the tap. s_place is
// scratch of [tap][virtual outputs] elements. Executes two barriers.
template <typename Traits>
__device__ __forceinline__ void load_weight(const Params& params, const Pass& pass, float* s_weight, int32_t* s_place) {
  using Element = typename Traits::Element;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.taps * params.outputs; index += blockDim.x) {
    const int32_t tap = index / params.outputs;
    const VirtualOutput output = virtual_output(params, pass, index - tap * params.outputs);
    const int32_t k_h = weight_tap(params.h, tap / params.w.num_taps, output.phase_h);
    const int32_t k_w = weight_tap(params.w, tap % params.w.num_taps, output.phase_w);
    const bool exists = output.exists && k_h >= 0 && k_w >= 0;
    s_place[index] = exists ? static_cast<int32_t>((pass.co + output.co) * params.weight_stride[1] +
                                                   k_h * params.weight_stride[2] + k_w * params.weight_stride[3])
                            : -1;
  }
  __syncthreads();  // s_place is complete
  const auto* g_weight = static_cast<const Element*>(params.weight) + pass.group * params.weight_group_stride;
  const int32_t elements = pass.num_groups * params.group_ci * params.by_weights.value;
#pragma unroll 8
  for (int32_t i = threadIdx.x; i < elements; i += blockDim.x) {
    int32_t place_index, ci;
    const int32_t channel = params.by_weights(i, &place_index);
    const int32_t group = params.by_group_ci(channel, &ci);
    const int32_t place = s_place[place_index];
    const Element* g_element = g_weight + group * params.weight_group_stride + ci * params.weight_stride[0] + place;
    if (place < 0) {
      s_weight[i] = 0;
    } else if constexpr (sizeof(Element) == 4) {
      ptx::cp_async<4>(ptx::shared_address(s_weight + i), g_element);
    } else {
      s_weight[i] = element::to_accumulator(*g_element);
    }
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();  // the first tile's barrier makes them visible to all threads
  __syncthreads();  // s_place is no longer needed
}

}  // namespace convt::thin
