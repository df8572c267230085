#include "reduce/channels.h"

#include <algorithm>

namespace convt {

reduce::ChannelParams channel_params(const ChannelSum& sum) {
  reduce::ChannelParams params{};
  const int64_t batch = sum.size[0], h = sum.size[2], w = sum.size[3];
  params.channels = sum.size[1];
  params.channel_stride = sum.stride[1];
  params.channel_lanes = 1;
  while (sum.stride[1] == 1 && params.channel_lanes < std::min<int64_t>(32, params.channels)) params.channel_lanes *= 2;
  // Columns, rows and images. Axes of size 1 are dropped, and axes that are contiguous with each other are merged.
  struct Run {
    int64_t count, stride;
  };
  Run runs[3] = {{1, 0}, {1, 0}, {1, 0}};
  int32_t last = 0;
  for (const Run& axis : {Run{w, sum.stride[3]}, Run{h, sum.stride[2]}, Run{batch, sum.stride[0]}}) {
    Run& inner = runs[last];
    if (axis.count == 1) continue;
    if (inner.count == 1) {
      inner = axis;
    } else if (axis.stride == inner.count * inner.stride) {
      inner.count *= axis.count;
    } else {
      runs[++last] = axis;
    }
  }
  params.columns = runs[0].count;
  params.column_stride = runs[0].stride;
  params.inner = runs[1].count;
  params.row_stride = runs[1].stride;
  params.image_stride = runs[2].stride;
  params.rows = runs[1].count * runs[2].count;
  // About 2000 thread blocks, unless chunks would be too short to be efficient or too long to be accurate. One chunk,
  // whose sums are the result, if one chunk has about as many thread blocks as a GPU has SMs.
  constexpr int64_t kBlocks = 2048, kMostPixels = int64_t{1} << 20, kOneChunkBlocks = 128, kOneChunkTurns = 64;
  const int64_t threads = reduce::kChannelThreads / params.channel_lanes;  // per channel
  const int64_t least_pixels = threads * (params.channel_lanes > 1 ? 64 : 16);
  const int64_t pixels = params.rows * params.columns;
  const int64_t blocks_per_chunk = ceil_div(params.channels, int64_t{params.channel_lanes});
  const bool one = blocks_per_chunk >= kOneChunkBlocks && pixels <= kOneChunkTurns * threads;
  const int64_t chunks = one ? 1 : std::max<int64_t>(1, kBlocks / blocks_per_chunk);
  const int64_t chunk = std::clamp(ceil_div(pixels, chunks), least_pixels, kMostPixels);
  params.chunk_columns = std::min(chunk, params.columns);
  params.chunk_rows = std::max<int64_t>(1, chunk / params.columns);
  params.column_chunks = ceil_div(params.columns, params.chunk_columns);
  return params;
}

int64_t num_channel_slabs(const reduce::ChannelParams& params) {
  return params.column_chunks * ceil_div(params.rows, params.chunk_rows);
}

}  // namespace convt
