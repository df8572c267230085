// Adds slabs: result[e] = sum over slabs, in a fixed order (docs/numerics.md), rounded once to the result's type.
// The slabs are cut into kSlices runs of neighbours; each run is added ascending, from +0, then the runs' sums
// ascending. Called by launch/. Must not know: what was summed.
#include "reduce/kernels.h"
#include "reduce/params.h"
#include "simt/traits.cuh"

namespace convt::reduce {
namespace {

using simt::add;

template <typename Element>
__global__ void __launch_bounds__(kSlabLanes* kSlices) add_slabs_kernel(const __grid_constant__ SlabParams params) {
  using Accumulator = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  __shared__ Accumulator s_sums[kSlices][kSlabLanes];
  const int32_t lane = threadIdx.x, slice = threadIdx.y;
  const int64_t element = int64_t{blockIdx.x} * kSlabLanes + lane;
  const bool exists = element < params.num_elements;
  const int64_t run = (params.num_slabs + kSlices - 1) / kSlices;
  const int64_t begin = slice * run, end = min(begin + run, params.num_slabs);
  Accumulator sum = 0;
  if (exists) {
    const auto* g_slabs = static_cast<const Accumulator*>(params.slabs) + element;  // [num_slabs], num_elements apart
#pragma unroll 8
    for (int64_t slab = begin; slab < end; ++slab) sum = add(sum, g_slabs[slab * params.num_elements]);
  }
  s_sums[slice][lane] = sum;
  __syncthreads();  // every run's sum is there
  if (slice > 0 || !exists) return;
  for (int32_t other = 1; other < kSlices && other * run < params.num_slabs; ++other) {
    sum = add(sum, s_sums[other][lane]);
  }
  int64_t rest = element, offset = 0;
#pragma unroll
  for (int axis = 3; axis >= 0; --axis) {
    const int64_t quotient = rest / params.size[axis];
    offset += (rest - quotient * params.size[axis]) * params.stride[axis];
    rest = quotient;
  }
  static_cast<Element*>(params.result)[offset] = simt::to_element<Element>(sum);
}

}  // namespace

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
