// Streams rows of one channel through the registers of a warp, for the depthwise kernels. Neighbouring lanes own
// neighbouring columns, one vector each. Shuffles supply the columns of neighbouring lanes. No shared memory, no
// barriers.
#pragma once

#include "depthwise/layout.h"
#include "element/vector.cuh"

namespace convt::depthwise {

// Work of a warp in a channel: chunk `chunk` of the rows, strip `strip` of the columns.
struct Strip {
  int32_t number;
  int32_t image;
  int32_t channel;
  int32_t chunk;
  int32_t strip;
  int32_t lane;

  __device__ __forceinline__ explicit Strip(const DepthwiseParams& params) {
    // The shuffle tells the compiler that the value is equal in all lanes.
    const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
    number = static_cast<int32_t>(blockIdx.x) * (kDepthwiseThreads / 32) + warp;
    lane = static_cast<int32_t>(threadIdx.x) % 32;
    int32_t index = number;
    strip = index % params.strips, index /= params.strips;
    chunk = index % params.chunks, index /= params.chunks;
    channel = index % params.channels;
    image = index / params.channels;
  }
};

// Loads the weight of a channel.
template <typename Element, int kKernel>
__device__ __forceinline__ void load_weight(const DepthwiseParams& params, int32_t channel,
                                            float (&r_weight)[kKernel][kKernel]) {
  const auto* g_weight = static_cast<const Element*>(params.weight) + channel * params.weight_stride[0];
#pragma unroll
  for (int k_h = 0; k_h < kKernel; ++k_h) {
#pragma unroll
    for (int k_w = 0; k_w < kKernel; ++k_w) {
      r_weight[k_h][k_w] =
          element::to_accumulator(g_weight[k_h * params.weight_stride[2] + k_w * params.weight_stride[3]]);
    }
  }
}

// Rows that stream through a warp. kBefore, kBehind: columns of a window before and after a lane's own columns. kWhole:
// every lane either loads its own columns as one vector, or has no columns and computes nothing.
template <typename ElementType, int kOwnValue, int kBefore, int kBehind, bool kWhole>
struct DepthwiseRows {
  using Element = ElementType;
  static constexpr int kOwn = kOwnValue;
  static constexpr int kWindow = kBefore + kOwn + kBehind;
  static constexpr int kEdges = kBefore > kBehind ? kBefore : kBehind;

  // A lane's columns, unconverted: its own, and in the first and last lane the columns of the neighbouring strips.
  struct Raw {
    element::Vector<Element, kOwn> own;
    element::Vector<Element, 1> edge[kEdges > 0 ? kEdges : 1];
  };

  const Element* g_next;  // the lane's first own column of the next row
  int64_t row_stride;
  int64_t column_stride;
  int64_t edge_offset;  // offset of the edge columns from g_next
  int32_t next;
  int32_t end;  // rows from here on are outside, or not needed
  uint32_t exist;  // bit mask of the window's existing columns
  uint32_t edge_bits;  // bit mask of the edge columns that this lane loads
  int32_t own_columns;  // number of columns from the first own one to the end of the row
  bool vectors;
  int32_t lane;

  // g_plane: start of the image's channel. column: the lane's first column.
  __device__ __forceinline__ DepthwiseRows(const Element* g_plane, const int64_t (&stride)[4], int32_t first_row,
                                           int32_t row_end, int32_t column, int32_t num_columns, bool has_vectors,
                                           int32_t lane_index)
      : g_next(g_plane + first_row * stride[2] + column * stride[3]),
        row_stride(stride[2]),
        column_stride(stride[3]),
        next(first_row),
        end(row_end),
        exist(0),
        edge_bits(0),
        own_columns(num_columns - column),
        vectors(has_vectors && column + kOwn <= num_columns),
        lane(lane_index) {
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
      const int32_t place = column - kBefore + i;
      exist |= static_cast<uint32_t>(place >= 0 && place < num_columns) << i;
    }
    const int first_edge = lane == 0 ? -kBefore : kOwn, edges = lane == 0 ? kBefore : lane == 31 ? kBehind : 0;
    edge_offset = first_edge * column_stride;
#pragma unroll
    for (int e = 0; e < kEdges; ++e) {
      edge_bits |= (e < edges ? exist >> (kBefore + first_edge + e) & 1 : 0u) << e;
    }
  }

  // Whether column i of the window exists: in all computing lanes, or in this lane.
  static __device__ __forceinline__ constexpr bool always_has(int i) {
    return kWhole && i >= kBefore && i < kBefore + kOwn;
  }
  __device__ __forceinline__ bool has(int i) const { return always_has(i) || (exist >> i & 1) != 0; }

  __device__ __forceinline__ void load(Raw& raw) {
    if (next >= 0 && next < end) {
      if (vectors) {
        raw.own.load(g_next);
      } else if constexpr (!kWhole) {
        raw.own.load(g_next, column_stride, own_columns);
      }
#pragma unroll
      for (int e = 0; e < kEdges; ++e) {
        if (edge_bits >> e & 1) raw.edge[e].load(g_next + edge_offset + e * column_stride);
      }
    }
    ++next;
    g_next += row_stride;
  }

  // Builds the window: kBefore columns of the previous lane, the own columns, kBehind columns of the next lane.
  __device__ __forceinline__ void finish(const Raw& raw, float (&r_window)[kWindow]) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) r_window[kBefore + i] = raw.own[i];
#pragma unroll
    for (int e = 0; e < kBefore; ++e) {
      const float other = __shfl_up_sync(0xffffffffu, raw.own[kOwn - kBefore + e], 1);
      r_window[e] = lane == 0 ? raw.edge[e][0] : other;
    }
#pragma unroll
    for (int e = 0; e < kBehind; ++e) {
      const float other = __shfl_down_sync(0xffffffffu, raw.own[e], 1);
      r_window[kBefore + kOwn + e] = lane == 31 ? raw.edge[e][0] : other;
    }
  }
};

}  // namespace convt::depthwise
