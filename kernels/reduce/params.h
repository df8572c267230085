// Kernels of reduce/ and their parameters.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"
#include "problem/volume.h"

namespace convt::reduce {

inline constexpr int32_t kSlices = 32;         // runs of slabs per result
inline constexpr int32_t kSlabLanes = 32;      // contiguous results per thread block
inline constexpr int32_t kFewSlabsThreads = 128;
inline constexpr int32_t kSlabNeighbours = 4;  // results per thread, for large results
inline constexpr int32_t kTransposedChannels = 128;  // channels per CTA of add_taps
inline constexpr int32_t kMostTransposedBytes = 48 << 10;  // shared memory per CTA, available on every GPU
// Shared-memory elements from one tap to the next: an odd number of words, against bank conflicts.
CONVT_HOST_DEVICE constexpr int32_t transposed_pitch(int32_t element_bytes) {
  return kTransposedChannels + (element_bytes < 4 ? 4 / element_bytes : 1);
}
inline constexpr int32_t kChannelThreads = 256;

// Operands of a gradient of the weight, from which sums can be recomputed (reduce/terms.cuh).
struct WeightTerms {
  const void* x;   // null: never recompute
  const void* gy;  // both have the weight's dtype
  int64_t x_stride[4], gy_stride[4];  // elements
  int64_t batch;
  int32_t group_ci, group_co;
  Axis h, w;
  PlaneRows planes;
};

// Contiguous slabs [num_slabs][size[0]][size[1]][size[2]][size[3]] -> a tensor of these sizes with any strides.
struct SlabParams {
  const void* slabs;
  void* result;
  int64_t num_slabs;
  int64_t num_elements;
  int32_t size[4];
  int64_t stride[4];  // elements
  bool stores_together;  // kSlabNeighbours elements of the last axis are contiguous and aligned in the result
  WeightTerms terms;
};

// Sums over the pixels of grad_output [rows][channels][columns] -> slabs [num_chunks][channels], or the result if there
// is one chunk. Pixels of an image, or of all images, are merged into as few rows as strides permit.
struct ChannelParams {
  const void* gy;
  void* slabs;
  void* result;  // null: write slabs
  int64_t rows;     // over all images
  int64_t inner;    // rows per image
  int64_t columns;
  int64_t channels;
  int64_t image_stride;  // elements
  int64_t row_stride;
  int64_t column_stride;
  int64_t channel_stride;
  int64_t chunk_columns;   // a chunk has chunk_columns columns of chunk_rows rows
  int64_t chunk_rows;
  int64_t column_chunks;   // chunks per row
  // Adjacent channels per thread block: 1, or, if channels are contiguous, their number rounded up to a power of two,
  // at most 32.
  int32_t channel_lanes;
};

// Kernels, as host symbols.
const void* add_slabs(DataType dtype);
const void* add_few_slabs(DataType dtype, bool together);  // at most kSlices slabs; by kSlabNeighbours if together
const void* add_taps(DataType dtype);  // the same, for results with contiguous taps
const void* channel_sums(DataType dtype);

}  // namespace convt::reduce
