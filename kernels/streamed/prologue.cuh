// Prologue of a CTA of streamed sources: the list of terms, their weights, and the CTA's positions.
#pragma once

#include "problem/phases.h"
#include "streamed/layout.h"
#include "streamed/tiled.cuh"

namespace convt::streamed {

struct StreamedTap {
  uint16_t h, w;
};

// Terms of a sum, in order: channels, then tap rows, then tap columns.
struct StreamedTerms {
  int32_t taps_h, taps_w;
  int32_t count;
  int32_t* s_sources;  // [count + kStreamedPadding]: offset from a position's first term; padding repeats the last
  StreamedTap* s_taps;  // [count + kStreamedPadding]; the padding repeats the last tap
  float* s_weights;  // [count][weight_pitch]
  const Phase &h, &w;

  __device__ __forceinline__ StreamedTerms(const StreamedParams& params, const Phase& phase_h, const Phase& phase_w,
                                           unsigned char* s_bytes)
      : taps_h(phase_h.num_taps),
        taps_w(phase_w.num_taps),
        count(params.group_ci * phase_h.num_taps * phase_w.num_taps),
        s_sources(reinterpret_cast<int32_t*>(s_bytes)),
        s_taps(reinterpret_cast<StreamedTap*>(s_bytes + params.weights_begin / 2)),
        s_weights(reinterpret_cast<float*>(s_bytes + params.weights_begin)),
        h(phase_h),
        w(phase_w) {}

  // Weights of nonexistent channels are 0. Their results are not stored.
  __device__ __forceinline__ void fill(const StreamedParams& params, const ResultTile& tile) const {
    constexpr int kBatch = 8;  // weights that are read at once
    const auto row = static_cast<int32_t>(params.source_stride[2]);
    const auto column = static_cast<int32_t>(params.source_stride[3]);
    const float* g_weight = params.weight + tile.group * params.weight_group_stride +
                            (tile.channel * params.weight_stride[1] + h.first_tap * params.weight_stride[2] +
                             w.first_tap * params.weight_stride[3]);
    const int32_t num_channels = params.group_co - tile.channel;
#pragma unroll 1
    for (int32_t place = threadIdx.x; place < count + kStreamedPadding; place += static_cast<int32_t>(blockDim.x)) {
      if (count == 0) break;
      const int32_t term = min(place, count - 1);
      const int32_t of_channel = term / taps_w, tap_w = term - of_channel * taps_w;
      const int32_t ci = of_channel / taps_h, tap_h = of_channel - ci * taps_h;
      s_taps[place] = {static_cast<uint16_t>(tap_h), static_cast<uint16_t>(tap_w)};
      s_sources[place] = ci * static_cast<int32_t>(params.source_stride[1]) - tap_h * h.shift_step * row -
                         tap_w * w.shift_step * column;
      if (place > term) continue;
      const float* g_term = g_weight + (ci * params.weight_stride[0] + tap_h * h.tap_step * params.weight_stride[2] +
                                        tap_w * w.tap_step * params.weight_stride[3]);
      float* s_term_weights = s_weights + term * params.weight_pitch;
#pragma unroll 1
      for (int32_t n = 0; n < params.block_channels; n += kBatch) {
        float r_weights[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          r_weights[i] = n + i < num_channels ? g_term[(n + i) * params.weight_stride[1]] : 0;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (n + i < params.block_channels) s_term_weights[n + i] = r_weights[i];
        }
      }
    }
  }
};

// Positions of an axis whose taps all exist.
struct InsideRange {
  int32_t begin, size;

  __device__ __forceinline__ InsideRange(const Phase& phase, int32_t step, int32_t source, int32_t positions) {
    const int32_t reach = max(0, phase.num_taps - 1) * phase.shift_step;
    const int32_t least = phase.first_shift - max(0, reach), most = phase.first_shift - min(0, reach);
    begin = min(positions, least < 0 ? (step - 1 - least) / step : 0);
    const int32_t end = most >= source ? 0 : (source - 1 - most) / step + 1;
    size = max(0, min(positions, end) - begin);
  }
};

// Orders the positions of a phase, of all images, as one sequence. Positions whose taps all exist come first, so that
// few warps contain positions with missing taps.
struct StreamedOrder {
  InsideRange rows, columns;
  int32_t num_rows, num_columns;  // per image
  int32_t inside, border;  // positions per image
  int32_t all_inside;  // over all images

  __device__ __forceinline__ StreamedOrder(const StreamedParams& params, const Phase& h, const Phase& w)
      : rows(h, params.row_step, params.rows, params.by_rows.value),
        columns(w, params.column_step, params.columns, params.by_columns.value),
        num_rows(params.by_rows.value),
        num_columns(params.by_columns.value),
        inside(rows.size * columns.size),
        border(num_rows * num_columns - inside),
        all_inside(params.num_positions / (num_rows * num_columns) * inside) {}

  __device__ __forceinline__ TiledPosition operator()(int32_t number) const {
    TiledPosition position;
    if (number < all_inside) {
      const int32_t row = number / columns.size;
      position.column = columns.begin + number - row * columns.size;
      position.image = row / rows.size;
      position.row = rows.begin + row - position.image * rows.size;
      return position;
    }
    number -= all_inside;
    position.image = number / border;
    number -= position.image * border;
    // Whole rows above and below, then the ends of the other rows.
    const int32_t whole_rows = num_rows - rows.size;
    if (number < whole_rows * num_columns) {
      const int32_t row = number / num_columns;
      position.column = number - row * num_columns;
      position.row = row < rows.begin ? row : row + rows.size;
      return position;
    }
    number -= whole_rows * num_columns;
    const int32_t ends = num_columns - columns.size;
    const int32_t row = number / ends, column = number - row * ends;
    position.row = rows.begin + row;
    position.column = column < columns.begin ? column : column + columns.size;
    return position;
  }
};

// A position of a thread.
struct StreamedPosition {
  const float* g_source;  // address that its first term reads; may be outside the image
  int32_t result;  // element offset in the result, or -1 if there is no position
  uint32_t rows;  // bit mask of existing tap rows
  uint32_t columns;

  // Returns whether all taps exist. Threads past the last position read the last position.
  __device__ __forceinline__ bool find(const StreamedParams& params, const ResultTile& tile, const Phase& h,
                                       const Phase& w, const StreamedOrder& order, int32_t number,
                                       const float* g_image) {
    const TiledPlace place(params, tile, h, w, order(min(number, params.num_positions - 1)));
    g_source = g_image + place.source;
    result = number < params.num_positions ? place.result : -1;
    rows = existing_taps(h, place.source_row, params.rows);
    columns = existing_taps(w, place.source_column, params.columns);
    return rows == all_bits(h.num_taps) && columns == all_bits(w.num_taps);
  }

  __device__ __forceinline__ bool has(StreamedTap tap) const { return (rows >> tap.h & columns >> tap.w & 1) != 0; }

 private:
  __device__ __forceinline__ static uint32_t all_bits(int32_t taps) { return taps == 32 ? ~0u : (1u << taps) - 1; }

  __device__ __forceinline__ static uint32_t existing_taps(const Phase& phase, int32_t first, int32_t size) {
    uint32_t bits = 0;
#pragma unroll 1
    for (int32_t tap = 0; tap < phase.num_taps; ++tap, first -= phase.shift_step) {
      bits |= static_cast<uint32_t>(static_cast<uint32_t>(first) < static_cast<uint32_t>(size)) << tap;
    }
    return bits;
  }
};

}  // namespace convt::streamed
