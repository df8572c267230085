// Adds slabs: result[e] = sum over slabs, in a fixed order (kernels/ORDER.md), rounded once to the result's type. The
// slabs are split into kSlices contiguous runs. Each run is added in ascending order from +0, then the runs' sums in
// ascending order. Called by launch/. Must not know: what was summed, except the terms of NaN sums (terms.cuh).
#include "element/arithmetic.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "reduce/params.h"
#include "reduce/terms.cuh"

namespace convt::reduce {
namespace {

using element::add;

// Coordinates of a slab element in the result. 32-bit division is much faster than 64-bit division.
struct Place {
  int32_t at[4];

  __device__ __forceinline__ Place(const SlabParams& params, int64_t element) {
    if (params.num_elements <= UINT32_MAX) {
      divide(params, static_cast<uint32_t>(element));
    } else {
      divide(params, element);
    }
  }

  template <typename Index>
  __device__ __forceinline__ void divide(const SlabParams& params, Index element) {
#pragma unroll
    for (int axis = 3; axis >= 0; --axis) {
      const Index size = static_cast<Index>(params.size[axis]), quotient = element / size;
      at[axis] = static_cast<int32_t>(element - quotient * size);
      element = quotient;
    }
  }
};

__device__ __forceinline__ int64_t offset_of(const SlabParams& params, const int32_t (&place)[4]) {
  int64_t offset = 0;
#pragma unroll
  for (int axis = 0; axis < 4; ++axis) offset += place[axis] * params.stride[axis];
  return offset;
}

// Recomputes the sum of an element. Not inlined and rarely called, so that the main path stays in registers.
template <typename Element>
__device__ __noinline__ float sum_again(const SlabParams& params, int64_t element) {
  return sum_of_terms<Element>(params.terms, Place(params, element).at);
}

// Rounds a sum to the result's type. A NaN sum is recomputed first, if terms are given.
template <typename Element, typename Accumulator>
__device__ __forceinline__ Element rounded(const SlabParams& params, int64_t element, Accumulator sum) {
  if constexpr (!std::is_same_v<Element, double>) {
    if (isnan(sum) && params.terms.x != nullptr) sum = sum_again<Element>(params, element);
  }
  return element::to_element<Element>(sum);
}

// Adds a thread's runs of an element: run `first`, first + step, ... kAtOnce runs are interleaved, and kBatch slabs of
// each are loaded before the first is added. Missing slabs count as +0, which does not change a sum that starts at +0.
template <int kAtOnce, int kBatch, typename Accumulator>
__device__ __forceinline__ void add_runs(Accumulator (*s_sums)[kSlabLanes], const Accumulator* g_slabs,
                                         const SlabParams& params, int32_t run, int32_t first, int32_t step) {
  const auto num_slabs = static_cast<int32_t>(params.num_slabs);
#pragma unroll 1
  for (; first < kSlices && first * run < num_slabs; first += kAtOnce * step) {
    Accumulator sums[kAtOnce] = {};
#pragma unroll 1
    for (int32_t i = 0; i < run; i += kBatch) {
      Accumulator slabs[kAtOnce][kBatch];
#pragma unroll
      for (int32_t k = 0; k < kAtOnce; ++k) {
        const int32_t next = (first + k * step) * run + i, left = min(run - i, num_slabs - next);
        const Accumulator* g_next = g_slabs + next * params.num_elements;
#pragma unroll
        for (int32_t b = 0; b < kBatch; ++b) {
          slabs[k][b] = b < left ? *g_next : Accumulator{0};
          g_next += params.num_elements;
        }
      }
#pragma unroll
      for (int32_t b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int32_t k = 0; k < kAtOnce; ++k) sums[k] = add(sums[k], slabs[k][b]);
      }
    }
#pragma unroll
    for (int32_t k = 0; k < kAtOnce; ++k) {
      if (first + k * step < kSlices) s_sums[first + k * step][threadIdx.x] = sums[k];
    }
  }
}

// blockDim.y threads share the runs of an element, with one or more runs each.
template <typename Element>
__global__ void __launch_bounds__(kSlabLanes* kSlices) add_slabs_kernel(const __grid_constant__ SlabParams params) {
  using Accumulator = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  __shared__ Accumulator s_sums[kSlices][kSlabLanes];
  const int32_t lane = threadIdx.x, row = threadIdx.y, rows = blockDim.y;
  const int64_t element = int64_t{blockIdx.x} * kSlabLanes + lane;
  const bool exists = element < params.num_elements;
  const auto num_slabs = static_cast<int32_t>(params.num_slabs);
  const int32_t run = (num_slabs + kSlices - 1) / kSlices;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  ptx::wait_for_previous_kernel();  // slabs are complete (programmatic dependent launch)
#endif
  const auto* g_slabs = static_cast<const Accumulator*>(params.slabs) + element;  // [num_slabs], stride num_elements
  if (exists && rows * run >= num_slabs) {
    add_runs<1, 16>(s_sums, g_slabs, params, run, row, rows);
  } else if (exists) {
    add_runs<4, 4>(s_sums, g_slabs, params, run, row, rows);
  }
  __syncthreads();  // all runs' sums are written
  if (row > 0 || !exists) return;
  Accumulator sum = s_sums[0][lane];
#pragma unroll
  for (int32_t other = 1; other < kSlices; ++other) {
    sum = add(sum, other * run < num_slabs ? s_sums[other][lane] : Accumulator{0});
  }
  const Place place(params, element);
  static_cast<Element*>(params.result)[offset_of(params, place.at)] = rounded<Element>(params, element, sum);
}

// Contiguous elements of a slab that a thread loads at once.
template <typename Accumulator, int kTogether>
struct alignas(kTogether * sizeof(Accumulator) < 16 ? kTogether * sizeof(Accumulator) : 16) Neighbours {
  Accumulator of[kTogether];
};

// Adds all slabs in ascending order, with kBatch slabs in flight.
template <int kBatch, typename Accumulator, int kTogether>
__device__ __forceinline__ void add_ascending(Neighbours<Accumulator, kTogether>& sums, const SlabParams& params,
                                              int64_t element) {
  using Slab = Neighbours<Accumulator, kTogether>;
  const auto* g_slabs = static_cast<const Accumulator*>(params.slabs) + element;  // [num_slabs], stride num_elements
  const auto num_slabs = static_cast<int32_t>(params.num_slabs);
#pragma unroll 1
  for (int32_t first = 0; first < num_slabs; first += kBatch) {
    Slab slabs[kBatch];
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      slabs[i] = first + i < num_slabs ? *reinterpret_cast<const Slab*>(g_slabs) : Slab{};
      g_slabs += params.num_elements;
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int32_t k = 0; k < kTogether; ++k) sums.of[k] = add(sums.of[k], slabs[i].of[k]);
    }
  }
}

// For at most kSlices slabs, so that every run is one slab. A thread adds kTogether contiguous elements of the last
// axis.
template <typename Element, int kTogether>
__global__ void __launch_bounds__(kFewSlabsThreads) add_few_slabs_kernel(const __grid_constant__ SlabParams params) {
  using Accumulator = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  const int64_t element = (int64_t{blockIdx.x} * kFewSlabsThreads + threadIdx.x) * kTogether;
  if (element >= params.num_elements) return;
  const Place place(params, element);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  ptx::wait_for_previous_kernel();  // slabs are complete (programmatic dependent launch)
#endif
  Neighbours<Accumulator, kTogether> sums{};
  if (params.num_slabs <= 4) {
    add_ascending<4>(sums, params, element);
  } else {
    add_ascending<kTogether == 1 ? 16 : 8>(sums, params, element);
  }
  Neighbours<Element, kTogether> results;
#pragma unroll
  for (int32_t k = 0; k < kTogether; ++k) {
    results.of[k] = rounded<Element>(params, element + k, sums.of[k]);
  }
  auto* g_result = static_cast<Element*>(params.result) + offset_of(params, place.at);
  if (kTogether > 1 && params.stores_together) {
    *reinterpret_cast<Neighbours<Element, kTogether>*>(g_result) = results;
  } else {
#pragma unroll
    for (int32_t k = 0; k < kTogether; ++k) g_result[k * params.stride[3]] = results.of[k];
  }
}

// Transposes slabs [taps][channels] to a result [channels][taps]. A CTA processes kTransposedChannels adjacent
// channels. A thread adds four of them, of every fourth tap. Results pass through shared memory.
template <typename Element>
__global__ void __launch_bounds__(kFewSlabsThreads) add_taps_kernel(const __grid_constant__ SlabParams params) {
  using Accumulator = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  constexpr int32_t kRows = kFewSlabsThreads * kSlabNeighbours / kTransposedChannels;
  extern __shared__ __align__(16) unsigned char s_bytes[];
  auto* s_results = reinterpret_cast<Element*>(s_bytes);  // [tap][channel], pitch kPitch
  constexpr int32_t kPitch = transposed_pitch(sizeof(Element));
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t taps = params.size[0] * params.size[1];
  const int64_t channels = int64_t{params.size[2]} * params.size[3], first = int64_t{blockIdx.x} * kTransposedChannels;
  const int32_t own = thread % (kTransposedChannels / kSlabNeighbours) * kSlabNeighbours;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  ptx::wait_for_previous_kernel();
#endif
  if (first + own < channels) {
#pragma unroll 1
    for (int32_t tap = thread / (kTransposedChannels / kSlabNeighbours); tap < taps; tap += kRows) {
      const int64_t element = tap * channels + first + own;
      Neighbours<Accumulator, kSlabNeighbours> sums{};
      if (params.num_slabs <= 4) {
        add_ascending<4>(sums, params, element);
      } else {
        add_ascending<8>(sums, params, element);
      }
#pragma unroll
      for (int32_t k = 0; k < kSlabNeighbours; ++k) {
        s_results[tap * kPitch + own + k] = rounded<Element>(params, element + k, sums.of[k]);
      }
    }
  }
  __syncthreads();
  const auto count = static_cast<int32_t>(min(int64_t{kTransposedChannels}, channels - first)) * taps;
  Element* g_results = static_cast<Element*>(params.result) + first * taps;
  for (int32_t i = thread * kSlabNeighbours; i < count; i += kFewSlabsThreads * kSlabNeighbours) {
    Neighbours<Element, kSlabNeighbours> results;
    int32_t channel = i / taps, tap = i - channel * taps;
#pragma unroll
    for (int32_t k = 0; k < kSlabNeighbours; ++k) {
      results.of[k] = s_results[tap * kPitch + channel];
      if (++tap == taps) tap = 0, ++channel;
    }
    *reinterpret_cast<Neighbours<Element, kSlabNeighbours>*>(g_results + i) = results;
  }
}

template <typename Element>
const void* few_slabs_of(bool together) {
  return together ? reinterpret_cast<const void*>(&add_few_slabs_kernel<Element, kSlabNeighbours>)
                  : reinterpret_cast<const void*>(&add_few_slabs_kernel<Element, 1>);
}

}  // namespace

const void* add_few_slabs(DataType dtype, bool together) {
  switch (dtype) {
    case DataType::kFloat32: return few_slabs_of<float>(together);
    case DataType::kFloat64: return few_slabs_of<double>(together);
    case DataType::kFloat16: return few_slabs_of<__half>(together);
    case DataType::kBFloat16: return few_slabs_of<__nv_bfloat16>(together);
  }
  return nullptr;
}

const void* add_taps(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32: return reinterpret_cast<const void*>(&add_taps_kernel<float>);
    case DataType::kFloat64: return reinterpret_cast<const void*>(&add_taps_kernel<double>);
    case DataType::kFloat16: return reinterpret_cast<const void*>(&add_taps_kernel<__half>);
    case DataType::kBFloat16: return reinterpret_cast<const void*>(&add_taps_kernel<__nv_bfloat16>);
  }
  return nullptr;
}

const void* add_slabs(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32: return reinterpret_cast<const void*>(&add_slabs_kernel<float>);
    case DataType::kFloat64: return reinterpret_cast<const void*>(&add_slabs_kernel<double>);
    case DataType::kFloat16: return reinterpret_cast<const void*>(&add_slabs_kernel<__half>);
    case DataType::kBFloat16: return reinterpret_cast<const void*>(&add_slabs_kernel<__nv_bfloat16>);
  }
  return nullptr;
}

}  // namespace convt::reduce
