// What the kernels of reduce/ are launched with.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt::reduce {

inline constexpr int32_t kSlices = 32;         // runs of the slabs of one result
inline constexpr int32_t kSlabLanes = 32;      // neighbouring results of a block
inline constexpr int32_t kFewSlabsThreads = 128;
inline constexpr int32_t kSlabNeighbours = 4;  // results of a thread, where there are many
inline constexpr int32_t kTransposedChannels = 128;  // of a CTA that lays taps beside each other
inline constexpr int32_t kMostTransposedBytes = 48 << 10;  // of shared memory, which every GPU has for a CTA
// Elements of shared memory from a tap to the next, an odd number of words.
CONVT_HOST_DEVICE constexpr int32_t transposed_pitch(int32_t element_bytes) {
  return kTransposedChannels + (element_bytes < 4 ? 4 / element_bytes : 1);
}
inline constexpr int32_t kChannelThreads = 256;

// What a gradient of the weight is summed from, for sums that are to be made again (reduce/terms.cuh).
struct WeightTerms {
  const void* x;   // null: none is
  const void* gy;  // of the weight's dtype, both
  int64_t x_stride[4], gy_stride[4];  // elements
  int64_t batch;
  int32_t group_ci, group_co;
  Axis h, w;
};

// Slabs [num_slabs][size[0]][size[1]][size[2]][size[3]], contiguous -> a tensor of these sizes and any strides.
struct SlabParams {
  const void* slabs;
  void* result;
  int64_t num_slabs;
  int64_t num_elements;
  int32_t size[4];
  int64_t stride[4];  // elements
  bool stores_together;  // kSlabNeighbours of the last axis are neighbours in the result, on as many elements
  WeightTerms terms;
};

// Sums over pixels of grad_output [rows][channels][columns], the pixels of an image or of all images merged into as
// few rows as its strides allow -> slabs [num_chunks][channels], or, of one chunk, the result.
struct ChannelParams {
  const void* gy;
  void* slabs;
  void* result;  // null: slabs
  int64_t rows;     // of all images
  int64_t inner;    // rows of an image
  int64_t columns;
  int64_t channels;
  int64_t image_stride;  // elements
  int64_t row_stride;
  int64_t column_stride;
  int64_t channel_stride;
  int64_t chunk_columns;   // a chunk is this many columns of chunk_rows rows
  int64_t chunk_rows;
  int64_t column_chunks;   // of a row
  // Neighbouring channels of a block: 1, or where they are neighbours in memory their number rounded up to a power of
  // two, at most 32.
  int32_t channel_lanes;
};

}  // namespace convt::reduce
