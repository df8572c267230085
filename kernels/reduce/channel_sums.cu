// Sums grad_output over images and pixels, for the gradient of the bias, in a fixed order (kernels/ORDER.md). Each
// chunk of pixels gives one slab; a single chunk gives the result. Thread t of a channel adds pixels t, t + threads,
// ... of each row of its chunk in ascending order. Then a tree reduction adds the threads' sums. Called by launch/.
#include "element/arithmetic.cuh"
#include "reduce/params.h"

namespace convt::reduce {
namespace {

using element::add;

template <typename Element>
__global__ void __launch_bounds__(kChannelThreads) channel_sums_kernel(const __grid_constant__ ChannelParams params) {
  using Accumulator = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  __shared__ Accumulator s_sums[kChannelThreads];
  const int32_t lanes = params.channel_lanes, threads = kChannelThreads / lanes;
  const int32_t lane = threadIdx.x & (lanes - 1), thread = threadIdx.x / lanes;
  const int64_t channel_blocks = (params.channels + lanes - 1) / lanes;
  const int64_t chunk = blockIdx.x / channel_blocks;
  const int64_t channel = (blockIdx.x - chunk * channel_blocks) * lanes + lane;
  const int64_t row_chunk = chunk / params.column_chunks;
  const int64_t column_begin = (chunk - row_chunk * params.column_chunks) * params.chunk_columns;
  const int64_t column_end = min(column_begin + params.chunk_columns, params.columns);
  const int64_t row_begin = row_chunk * params.chunk_rows;
  const int64_t row_end = min(row_begin + params.chunk_rows, params.rows);
  constexpr int32_t kBatch = 16;  // loads in flight
  const int64_t step = threads * params.column_stride;
  Accumulator sum = 0;
  if (channel < params.channels) {
    const auto* g_channel =
        static_cast<const Element*>(params.gy) + channel * params.channel_stride;  // [rows, columns]
    for (int64_t row = row_begin; row < row_end; ++row) {
      const int64_t image = row / params.inner;
      const int64_t first = column_begin + thread;
      const Element* g_next = g_channel + image * params.image_stride +
                              (row - image * params.inner) * params.row_stride + first * params.column_stride;
#pragma unroll 1
      for (int64_t left = column_end - first; left > 0; left -= kBatch * threads) {
        Element elements[kBatch];
#pragma unroll
        for (int32_t i = 0; i < kBatch; ++i) {
          // Adding +0 does not change a sum that starts at +0.
          elements[i] = i * threads < left ? *g_next : element::to_element<Element>(Accumulator{0});
          g_next += step;
        }
#pragma unroll
        for (int32_t i = 0; i < kBatch; ++i) sum = add(sum, element::to_accumulator(elements[i]));
      }
    }
  }
  s_sums[threadIdx.x] = sum;
  for (int32_t half = kChannelThreads / 2; half >= lanes; half /= 2) {
    __syncthreads();  // sums of the previous round are written
    if (threadIdx.x < half) s_sums[threadIdx.x] = add(s_sums[threadIdx.x], s_sums[threadIdx.x + half]);
  }
  if (thread > 0 || channel >= params.channels) return;
  if (params.result != nullptr) {
    static_cast<Element*>(params.result)[channel] = element::to_element<Element>(s_sums[lane]);
  } else {
    static_cast<Accumulator*>(params.slabs)[chunk * params.channels + channel] = s_sums[lane];
  }
}

}  // namespace

const void* channel_sums(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32: return reinterpret_cast<const void*>(&channel_sums_kernel<float>);
    case DataType::kFloat64: return reinterpret_cast<const void*>(&channel_sums_kernel<double>);
    case DataType::kFloat16: return reinterpret_cast<const void*>(&channel_sums_kernel<__half>);
    case DataType::kBFloat16: return reinterpret_cast<const void*>(&channel_sums_kernel<__nv_bfloat16>);
  }
  return nullptr;
}

}  // namespace convt::reduce
