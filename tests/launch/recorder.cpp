// Replaces CUDA and the compiled kernels: launch_kernel() records its arguments, a kernel is its name (kernels/), and a
// tensor map contains the arguments of its encoding. The launchers thus run on any machine, and tests can compare two
// versions of them byte for byte.
#include "launch/recorder.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <utility>

#include "epilogue/pass.h"
#include "launch/kernel.h"
#include "launch/tensor_map_rules.h"
#include "reduce/params.h"

static thread_local std::vector<RecordedLaunch> launches;

std::vector<RecordedLaunch> take_launches() { return std::exchange(launches, {}); }

namespace convt {

void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t,
                   std::initializer_list<KernelArgument> arguments) {
  RecordedLaunch launch{static_cast<const char*>(kernel),
                        grid.name,
                        grid.blocks,
                        grid.threads.x,
                        grid.threads.y,
                        grid.shared_bytes,
                        grid.waits_itself,
                        grid.cluster,
                        {}};
  for (const KernelArgument& argument : arguments) {
    launch.arguments.emplace_back(static_cast<const char*>(argument.data), argument.bytes);
  }
  launches.push_back(std::move(launch));
}

void fill_zero(void* memory, int64_t bytes, const char* kernel, cudaStream_t stream) {
  launch_kernel("zeros", Grid{kernel, 1, dim3(1)}, stream, memory, bytes);
}

namespace pack {
const void* pack_pixels(DataType) { return "pixels"; }
const void* pack_rows(DataType) { return "rows"; }
const void* pack_weights(DataType, Precision) { return "weights pack"; }
}  // namespace pack

namespace reduce {
const void* add_slabs(DataType) { return "add_slabs"; }
const void* add_taps(DataType) { return "add_taps"; }
const void* add_few_slabs(DataType, bool together) { return together ? "add_few_slabs together" : "add_few_slabs"; }
const void* channel_sums(DataType) { return "channel_sums"; }
}  // namespace reduce

namespace epilogue {
const void* run_pass(DataType, bool) { return "run_pass"; }
}  // namespace epilogue

}  // namespace convt

namespace {

CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
  if (!is_legal_map(rank, address, sizes, strides, box, steps)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof(*map));
  cuuint64_t* words = map->opaque;  // 16
  words[0] = reinterpret_cast<uintptr_t>(address);
  words[1] = uint64_t{rank} << 48 | static_cast<uint64_t>(type) << 32 | static_cast<uint64_t>(swizzle) << 16 |
             static_cast<uint64_t>(promotion);
  for (cuuint32_t i = 0; i < rank; ++i) {
    words[2 + i] = sizes[i] << 24 ^ (uint64_t{box[i]} << 8 | steps[i]);
    if (i > 0) words[6 + i] = strides[i - 1];
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(&encode);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of no GPU"; }
}
