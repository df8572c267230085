#include <dlfcn.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

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
  // Sustained fractions on an H200: of the top clock in FFMA code, and of the nominal memory rate in copies. Rounded to
  // whole MHz and GB/s, the units of convt_ext::plan, so that a call and a query get the same plan.
  info.clock_ghz = std::round(attribute(cudaDevAttrClockRate, index) * 1e-3 * 0.955) * 1e-3;
  info.copy_gb_per_s = std::round(2.0 * attribute(cudaDevAttrMemoryClockRate, index) * 1e-6 *
                                  attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8 * 0.875);
  return info;
}

// The GPU for which calls are planned: the actual one, or a less capable one described by CONVT_EXT_PLAN_FOR. Tests use
// it to run kernels that no plan for this GPU contains.
DeviceInfo planned_for(const DeviceInfo& own) {
  const char* text = std::getenv("CONVT_EXT_PLAN_FOR");
  if (text == nullptr || *text == '\0') return own;
  int capability = 0, num_sms = 0, shared_per_block = 0, shared_per_sm = 0, clock_mhz = 0, copy_gb_per_s = 0, end = 0;
  const int found = std::sscanf(text, "%d,%d,%d,%d,%d,%d%n", &capability, &num_sms, &shared_per_block, &shared_per_sm,
                                &clock_mhz, &copy_gb_per_s, &end);
  STD_TORCH_CHECK(found == 6 && text[end] == '\0' && capability > 0 && num_sms > 0 && shared_per_block > 0 &&
                      shared_per_sm > 0 && clock_mhz > 0 && copy_gb_per_s > 0,
                  "convt_ext: CONVT_EXT_PLAN_FOR must be six positive numbers separated by commas (compute "
                  "capability as 80, multiprocessors, shared memory per block and per multiprocessor in bytes, MHz, "
                  "GB/s), got ",
                  text);
  STD_TORCH_CHECK(capability <= own.compute_capability && shared_per_block <= own.shared_per_block,
                  "convt_ext: CONVT_EXT_PLAN_FOR describes a GPU of compute capability ", capability, " with ",
                  shared_per_block, " bytes of shared memory per block; this GPU has ", own.compute_capability, " and ",
                  own.shared_per_block, " and cannot run its plans");
  return {capability, num_sms, shared_per_block, shared_per_sm, clock_mhz * 1e-3, static_cast<double>(copy_gb_per_s)};
}

using CurrentStream = int32_t (*)(int32_t device_index, void** stream);

// The only function needed from PyTorch's CUDA library. This binary does not link that library, so that it also loads
// on CPU builds. dlsym over all libraries does not find it, because Python loads libraries privately. dlopen by file
// name finds the library if it is loaded.
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

// Minimum severity of PyTorch's log messages. Null if this PyTorch has no such variable.
int* find_log_level() {
  void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : static_cast<int*>(dlsym(library, "FLAGS_caffe2_log_level"));
}

std::mutex quiet_mutex;
int num_quiet = 0;
int level_before = 0;

}  // namespace

QuietFailures::QuietFailures() {
  static int* const level = find_log_level();
  level_ = level;
  if (level_ == nullptr) return;
  constexpr int kFatal = 3;  // the severity above errors
  const std::lock_guard<std::mutex> lock(quiet_mutex);
  if (num_quiet++ == 0) level_before = std::exchange(*level_, std::max(*level_, kFatal));
}

QuietFailures::~QuietFailures() {
  if (level_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(quiet_mutex);
  if (--num_quiet == 0) *level_ = level_before;
}

const DeviceInfo& device_info(int64_t index) {
  constexpr int64_t kMaxDevices = 64;
  static std::once_flag once[kMaxDevices];
  static DeviceInfo infos[kMaxDevices];
  STD_TORCH_CHECK(index >= 0 && index < kMaxDevices, "convt_ext: GPU index must be 0 to 63, got ", index);
  std::call_once(once[index], [index] { infos[index] = planned_for(ask(static_cast<int32_t>(index))); });
  return infos[index];
}

cudaStream_t current_stream(int32_t index) {
  static const CurrentStream get = find_current_stream();
  void* stream = nullptr;
  STD_TORCH_CHECK(get(index, &stream) == 0, "convt_ext: cannot get the current stream of GPU ", index);
  return static_cast<cudaStream_t>(stream);
}

void wait_for_stream(int32_t index) {
  // While any thread captures in CUDA's strictest mode, a wait would invalidate that capture, unless this thread
  // relaxes its own mode. The stream is this thread's own and is not captured.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check_launch(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  const cudaError_t status = cudaStreamSynchronize(current_stream(index));
  cudaThreadExchangeStreamCaptureMode(&mode);
  check_launch(status, "waiting for the stream");
}

}  // namespace convt::binding
