// The stages of the kernel for runs of grad_output, by one warp: boxes by tensor map where lines begin on 16 bytes, or
// copies of runs, of which a lane has a channel.
#pragma once

#include "patch_sm90a/runs_tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// Rows of one image are a run of every channel.
__device__ __forceinline__ void copy_runs(const RunsParams& params, const RunsTile& tile, int32_t rows, int32_t stage,
                                          uint32_t s_stage, uint32_t full) {
  const int32_t channel = static_cast<int32_t>(threadIdx.x) % 32;
  if (channel >= params.stage_channels) return;
  const char* g_channel =
      static_cast<const char*>(params.source) + (stage * params.stage_channels + channel) * params.source_stride[1];
  uint32_t s_run = s_stage + channel * params.channel_pitch;
  for (int32_t row = 0; row < rows;) {
    int32_t of_image;
    const int32_t image = params.by_rows(tile.first_row + row, &of_image);
    const int32_t together = min(rows - row, params.by_rows.value - of_image);
    const char* g_run = g_channel + image * params.source_stride[0] + int64_t{of_image} * params.row_bytes;
    const uint32_t bytes = together * params.row_bytes;
    ptx::bulk_copy(s_run, g_run, bytes, full);
    s_run += bytes;
    row += together;
  }
}

__device__ __forceinline__ void load_runs(const RunsParams& params, const RunsTile& tile, uint32_t s_weights,
                                          uint32_t s_source, Ring ring) {
  const bool first = threadIdx.x % 32 == 0;
  const int32_t rows = params.boxes ? params.rows : min(params.rows, params.total_rows - tile.first_row);
  const uint32_t bytes = params.weights_bytes + params.stage_channels * rows * params.row_bytes;
  int32_t row;
  const int32_t image = params.by_rows(tile.first_row, &row);
  for (int32_t stage = tile.first_stage; stage < tile.end_stage; ++stage) {
    ring.wait_empty();  // the consumers have multiplied what was here
    if (first) ptx::mbarrier_expect(ring.full(), bytes);
    __syncwarp();  // the barrier knows how many bytes come
    const uint32_t s_stage = s_source + ring.slot() * params.source_bytes;
    if (!params.boxes) copy_runs(params, tile, rows, stage, s_stage, ring.full());
    if (first) {
      if (params.boxes) {
        const int32_t lines[4] = {0, row * params.kernel_h, image, stage * params.stage_channels};
        ptx::tensor_copy(s_stage, &params.lines, lines, ring.full());
      }
      const int32_t weights[4] = {stage * params.stage_elements, tile.first_channel, 0, 0};
      ptx::tensor_copy(s_weights + ring.slot() * params.weights_bytes, &params.weights, weights, ring.full());
    }
    ring.advance();
  }
}

#endif

}  // namespace convt::patch_sm90a
