#include "launch/kernel.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace convt {

bool is_of_earlier_kernel(cudaError_t status) {
  switch (status) {
    // Errors of a running kernel. A failing launch itself reports its arguments, code or resources.
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed: return true;
    default: return false;
  }
}

std::string words_of_earlier_kernel(cudaError_t status) {
  return std::string("CUDA error: ") + cudaGetErrorString(status) +
         ". A kernel that ran before this call of convt_ext left it; CUDA reports such errors late. "
         "CUDA_LAUNCH_BLOCKING=1 makes the call fail that launched the kernel";
}

void check_launch(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  if (is_of_earlier_kernel(status)) throw std::runtime_error(words_of_earlier_kernel(status));
  cudaGetLastError();  // already reported here; it must not surface in a later call
  throw std::runtime_error("convt_ext: " + what + " failed: " + cudaGetErrorString(status));
}

namespace {

constexpr size_t kMostArguments = 3;

void check(cudaError_t status, const char* what, const Grid& grid) {
  if (status == cudaSuccess) return;
  const int64_t threads = int64_t{grid.threads.x} * grid.threads.y * grid.threads.z;
  std::string words = std::string(what) + " of " + grid.name + " (threads " + std::to_string(threads) + ", blocks " +
                      std::to_string(grid.blocks) + ", shared memory " + std::to_string(grid.shared_bytes) + " bytes)";
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    words += ", for whose GPU this build of convt_ext has no machine code (see `python -m convt_ext info`),";
  }
  check_launch(status, words);
}

// Shared memory above 48 KiB, including static arrays, needs an opt-in per kernel, device and size.
void allow_shared_memory(const void* kernel, const Grid& grid) {
  constexpr int32_t kAlwaysAllowed = 40 * 1024;
  if (grid.shared_bytes <= kAlwaysAllowed) return;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice", grid);
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int32_t> allowed;
  const std::lock_guard<std::mutex> lock(mutex);
  int32_t& known = allowed[{kernel, device}];
  if (known >= grid.shared_bytes) return;  // never lower the limit that another thread's launch needs
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes),
        "the shared memory opt-in", grid);
  known = grid.shared_bytes;
}

}  // namespace

void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t stream,
                   std::initializer_list<KernelArgument> arguments) {
  if (grid.blocks > INT32_MAX) {
    throw std::runtime_error(std::string("convt_ext: ") + grid.name + " would need " + std::to_string(grid.blocks) +
                             " blocks, more than a grid has");
  }
  allow_shared_memory(kernel, grid);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<uint32_t>(grid.blocks));
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (grid.waits_itself) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& clusters = attributes[config.numAttrs++];
    clusters.id = cudaLaunchAttributeClusterDimension;
    clusters.val.clusterDim.x = grid.cluster;
    clusters.val.clusterDim.y = clusters.val.clusterDim.z = 1;
  }
  void* addresses[kMostArguments]{};
  size_t count = 0;
  for (const KernelArgument& argument : arguments) addresses[count++] = const_cast<void*>(argument.data);
  check(cudaLaunchKernelExC(&config, kernel, addresses), "the launch", grid);
}

void fill_zero(void* memory, int64_t bytes, const char* kernel, cudaStream_t stream) {
  check_launch(cudaMemsetAsync(memory, 0, bytes, stream), std::string("filling the counters of ") + kernel);
}

}  // namespace convt
