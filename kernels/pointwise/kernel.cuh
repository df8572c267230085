// 1 x 1 layers: a thread computes one result, its channels in ascending order, then the bias.
// Called by pointwise/launch.cpp. Must not know: torch, how the plan was chosen.
#pragma once

#include "element/arithmetic.cuh"
#include "pointwise/layout.h"

namespace convt::pointwise {

__global__ void __launch_bounds__(kPointwiseThreads) convolve(const __grid_constant__ Params params) {
  const int32_t number = static_cast<int32_t>(blockIdx.x) * kPointwiseThreads + static_cast<int32_t>(threadIdx.x);
  if (number >= params.results) return;
  int32_t column, row, channel;
  const int32_t image = params.by_channels(params.by_rows(params.by_columns(number, &column), &row), &channel);
  const float* g_source = params.source + image * params.source_stride[0] + row * params.source_stride[2] +
                          column * params.source_stride[3];
  const float* g_weight = params.weight + channel * params.weight_stride[1];
  float sum = 0;
  for (int32_t ci = 0; ci < params.channels; ++ci) {
    sum = element::fused_multiply_add(g_source[ci * params.source_stride[1]], g_weight[ci * params.weight_stride[0]],
                                      sum);
  }
  if (params.bias != nullptr) sum = element::add(sum, params.bias[channel]);
  params.result[image * params.result_stride[0] + channel * params.result_stride[1] + row * params.result_stride[2] +
                column * params.result_stride[3]] = sum;
}

}  // namespace convt::pointwise
