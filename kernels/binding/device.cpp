#include <dlfcn.h>
#include <torch/headeronly/util/Exception.h>

#include <cmath>
#include <mutex>

#include "binding/call.h"
#include "launch/kernel.h"

namespace convt::binding {
namespace {

int attribute(cudaDeviceAttr name, int32_t index) {
  int value = 0;
  const cudaError_t status = cudaDeviceGetAttribute(&value, name, index);
  STD_TORCH_CHECK(status == cudaSuccess, "convt_ext: cannot read the properties of GPU ", index, ": ",
                  cudaGetErrorString(status));
  return value;
}

DeviceInfo ask(int32_t index) {
  DeviceInfo info{};
  info.compute_capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor, index) + attribute(cudaDevAttrComputeCapabilityMinor, index);
  info.num_sms = attribute(cudaDevAttrMultiProcessorCount, index);
  info.shared_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  info.shared_per_sm = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, index);
  // What an H200 sustains of its top clock in FFMA code, and of its nominal memory rate in copies.
  // Whole MHz and GB/s, as convt_ext::plan takes them: a call's plan and the plan that somebody asks for are the same.
  info.clock_ghz = std::round(attribute(cudaDevAttrClockRate, index) * 1e-3 * 0.955) * 1e-3;
  info.copy_gb_per_s = std::round(2.0 * attribute(cudaDevAttrMemoryClockRate, index) * 1e-6 *
                                  attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8 * 0.875);
  return info;
}

using CurrentStream = int32_t (*)(int32_t device_index, void** stream);

// The one function needed of PyTorch's CUDA library. This binary does not link that library, so that it
// loads on CPU builds too; dlsym over all libraries does not find it because Python loads libraries
// privately. By its own name it is found wherever it has been loaded.
CurrentStream find_current_stream() {
  void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  STD_TORCH_CHECK(library != nullptr,
                  "convt_ext: this PyTorch has no CUDA library loaded; install a CUDA build of torch");
  void* symbol = dlsym(library, "aoti_torch_get_current_cuda_stream");
  STD_TORCH_CHECK(
      symbol != nullptr,
      "convt_ext: libtorch_cuda.so has no aoti_torch_get_current_cuda_stream; torch 2.10 or newer is needed");
  return reinterpret_cast<CurrentStream>(symbol);
}

}  // namespace

const DeviceInfo& device_info(int64_t index) {
  constexpr int64_t kMaxDevices = 64;
  static std::once_flag once[kMaxDevices];
  static DeviceInfo infos[kMaxDevices];
  STD_TORCH_CHECK(index >= 0 && index < kMaxDevices, "convt_ext: GPU index must be 0 to 63, got ", index);
  std::call_once(once[index], [index] { infos[index] = ask(static_cast<int32_t>(index)); });
  return infos[index];
}

cudaStream_t current_stream(int32_t index) {
  static const CurrentStream get = find_current_stream();
  void* stream = nullptr;
  STD_TORCH_CHECK(get(index, &stream) == 0, "convt_ext: cannot get the current stream of GPU ", index);
  return static_cast<cudaStream_t>(stream);
}

void wait_for_stream(int32_t index) {
  // While any thread captures in CUDA's strictest mode, waiting would end that capture with an error unless this
  // thread says that it knows what it does: the stream that it waits for is its own and not captured.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check_launch(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  const cudaError_t status = cudaStreamSynchronize(current_stream(index));
  cudaThreadExchangeStreamCaptureMode(&mode);
  check_launch(status, "waiting for the stream");
}

}  // namespace convt::binding
