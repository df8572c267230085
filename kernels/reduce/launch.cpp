#include "reduce/launch.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "launch/kernel.h"
#include "reduce/params.h"

namespace convt {
namespace {

// Whether the kernel's code for this GPU supports griddepcontrol.wait, which needs code compiled for sm_90 or newer.
bool can_wait(const void* kernel) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, bool> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find({kernel, device});
  if (found != known.end()) return found->second;
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) return false;
  return known[{kernel, device}] = attributes.ptxVersion >= 90;
}

// Merges result axes that are contiguous in the same order as in slabs into the last axis. Terms need separate axes.
void merge_axes(reduce::SlabParams* params) {
  if (params->terms.x != nullptr) return;
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t size = int64_t{params->size[axis]} * params->size[3];
    if (params->size[axis] > 1 && params->stride[axis] != params->size[3] * params->stride[3]) return;
    if (size > INT32_MAX) return;
    params->size[3] = static_cast<int32_t>(size);
    params->size[axis] = 1;
  }
}

int64_t taps_of(const reduce::SlabParams& params) { return int64_t{params.size[0]} * params.size[1]; }

// Shared memory of a CTA of add_taps.
int64_t transposed_bytes(const reduce::SlabParams& params, DataType dtype) {
  const auto element = static_cast<int32_t>(element_bytes(dtype));
  return taps_of(params) * reduce::transposed_pitch(element) * element;
}

// Whether the result is contiguous [size[2]][size[3]][size[0]][size[1]], with taps innermost. In slabs taps are
// outermost.
bool transposes_taps(const reduce::SlabParams& params, DataType dtype) {
  const int64_t taps = taps_of(params);
  const auto follows = [](int32_t size, int64_t stride, int64_t inner) { return size == 1 || stride == inner; };
  return taps > 1 && transposed_bytes(params, dtype) <= reduce::kMostTransposedBytes &&
         follows(params.size[1], params.stride[1], 1) && follows(params.size[0], params.stride[0], params.size[1]) &&
         follows(params.size[3], params.stride[3], taps) &&
         follows(params.size[2], params.stride[2], params.size[3] * taps) &&
         int64_t{params.size[2]} * params.size[3] % reduce::kSlabNeighbours == 0 &&
         reinterpret_cast<uintptr_t>(params.result) % (reduce::kSlabNeighbours * element_bytes(dtype)) == 0;
}

// Whether a thread can store its kSlabNeighbours results at once.
bool has_neighbours(const reduce::SlabParams& params, DataType dtype) {
  const int64_t bytes = std::min<int64_t>(reduce::kSlabNeighbours * element_bytes(dtype), 16);
  int64_t others = 0;
  for (int axis = 0; axis < 3; ++axis) others |= params.size[axis] > 1 ? params.stride[axis] : 0;
  return params.stride[3] == 1 && others % reduce::kSlabNeighbours == 0 &&
         reinterpret_cast<uintptr_t>(params.result) % bytes == 0;
}

}  // namespace

void launch_add_slabs(DataType dtype, const void* slabs, int64_t num_slabs, const int64_t* size, const int64_t* stride,
                      void* result, cudaStream_t stream, const reduce::WeightTerms& terms) {
  reduce::SlabParams params{};
  params.terms = terms;
  params.slabs = slabs;
  params.result = result;
  params.num_slabs = num_slabs;
  params.num_elements = 1;
  for (int i = 0; i < 4; ++i) {
    params.num_elements *= size[i];
    params.size[i] = static_cast<int32_t>(size[i]);
    params.stride[i] = stride[i];
  }
  // One thread per run of slabs. If that exceeds what the GPU runs at once, one thread for several runs, or for all.
  constexpr int64_t kMostFullBlocks = 264, kRowsOfMany = 8;
  const int64_t blocks = ceil_div(params.num_elements, int64_t{reduce::kSlabLanes});
  if (blocks > kMostFullBlocks && num_slabs <= reduce::kSlices) {
    constexpr int64_t kManyElements = 1 << 17;
    if (params.num_elements >= kManyElements && transposes_taps(params, dtype)) {
      const void* kernel = reduce::add_taps(dtype);
      const int64_t of_taps = ceil_div(params.num_elements / taps_of(params), int64_t{reduce::kTransposedChannels});
      const Grid grid{"add_taps", of_taps, dim3(reduce::kFewSlabsThreads),
                      static_cast<int32_t>(transposed_bytes(params, dtype)), can_wait(kernel)};
      return launch_kernel(kernel, grid, stream, params);
    }
    merge_axes(&params);
    const bool together = params.num_elements >= kManyElements && params.size[3] % reduce::kSlabNeighbours == 0;
    params.stores_together = together && has_neighbours(params, dtype);
    const void* kernel = reduce::add_few_slabs(dtype, together);
    const int64_t threads = params.num_elements / (together ? reduce::kSlabNeighbours : 1);
    const int64_t few_blocks = ceil_div(threads, int64_t{reduce::kFewSlabsThreads});
    const Grid grid{"add_few_slabs", few_blocks, dim3(reduce::kFewSlabsThreads), 0, can_wait(kernel)};
    return launch_kernel(kernel, grid, stream, params);
  }
  int64_t rows =
      std::max<int64_t>(1, ceil_div(num_slabs, std::max<int64_t>(1, ceil_div(num_slabs, int64_t{reduce::kSlices}))));
  if (blocks > kMostFullBlocks) rows = std::min(rows, kRowsOfMany);
  const void* kernel = reduce::add_slabs(dtype);
  const dim3 threads(reduce::kSlabLanes, static_cast<uint32_t>(rows));
  launch_kernel(kernel, Grid{"add_slabs", blocks, threads, 0, can_wait(kernel)}, stream, params);
}

int64_t workspace_bytes(const ChannelSum& sum) {
  const int64_t slabs = num_channel_slabs(sum);
  return slabs == 1 ? 0 : slabs * sum.size[1] * (sum.dtype == DataType::kFloat64 ? 8 : 4);
}

int64_t launch_channel_slabs(const ChannelSum& sum, const void* gy, void* slabs, cudaStream_t stream, void* result) {
  reduce::ChannelParams params = channel_params(sum);
  const int64_t num_slabs = num_channel_slabs(params);
  params.gy = gy;
  params.slabs = slabs;
  if (num_slabs == 1) params.result = result;
  const int64_t blocks = num_slabs * ceil_div(params.channels, int64_t{params.channel_lanes});
  const Grid grid{"channel_sums", blocks, dim3(reduce::kChannelThreads)};
  launch_kernel(reduce::channel_sums(sum.dtype), grid, stream, params);
  return num_slabs;
}

void launch_channel_sum(const ChannelSum& sum, const void* gy, void* workspace, void* result, cudaStream_t stream) {
  const int64_t slabs = launch_channel_slabs(sum, gy, workspace, stream, result);
  if (slabs > 1) launch_add_bias(sum.dtype, sum.size[1], workspace, slabs, result, stream);
}

}  // namespace convt
