// The stages of the kernel for runs of grad_output: one warp, whose lanes have a run each.
#pragma once

#include "patch_sm90a/runs_tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

__device__ __forceinline__ void load_runs(const RunsParams& params, const RunsTile& tile, uint32_t s_weights,
                                          uint32_t s_source, Ring ring) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t rows = min(params.rows, params.total_rows - tile.first_row);
  const uint32_t bytes = params.weights_bytes + params.stage_channels * rows * params.row_bytes;
  const char* g_source = static_cast<const char*>(params.source);
  for (int32_t stage = tile.first_stage; stage < tile.end_stage; ++stage) {
    ring.wait_empty();  // the consumers have multiplied what was here
    if (lane == 0) ptx::mbarrier_expect(ring.full(), bytes);
    __syncwarp();  // the barrier knows how many bytes come
    for (int32_t channel = lane; channel < params.stage_channels; channel += 32) {
      const char* g_channel = g_source + (stage * params.stage_channels + channel) * params.source_stride[1];
      uint32_t s_run = s_source + ring.slot() * params.source_bytes + channel * params.channel_pitch;
      // Rows of one image are a run.
      for (int32_t row = 0; row < rows;) {
        int32_t of_image;
        const int32_t image = params.by_rows(tile.first_row + row, &of_image);
        const int32_t together = min(rows - row, params.by_rows.value - of_image);
        ptx::bulk_copy(s_run, g_channel + image * params.source_stride[0] + int64_t{of_image} * params.row_bytes,
                       together * params.row_bytes, ring.full());
        s_run += together * params.row_bytes;
        row += together;
      }
    }
    if (lane == 0) {
      const int32_t at[4] = {stage * (params.stage_channels * params.kernel_h * params.kernel_w), tile.first_channel, 0,
                             0};
      ptx::tensor_copy(s_weights + ring.slot() * params.weights_bytes, &params.weights, at, ring.full());
    }
    ring.advance();
  }
}

#endif

}  // namespace convt::patch_sm90a
