#include "launch/launch.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "launch/engines.h"
#include "launch/errors.h"
#include "launch/tensor_map.h"
#include "problem/describe.h"

namespace convt {
namespace {

void check(cudaError_t status, const char* what, const Plan& plan) {
  if (status == cudaSuccess) return;
  std::string words = std::string(what) + " of " + plan.kernel + " (threads " + std::to_string(plan.threads) +
                      ", blocks " + std::to_string(plan.num_blocks) + ", shared memory " +
                      std::to_string(plan.shared_bytes) + " bytes)";
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    words += ", for whose GPU this build of convt_ext has no machine code (see `python -m convt_ext info`),";
  }
  check_launch(status, words);
}

// Shared memory above 48 KiB, the kernel's static tables included, needs an opt-in, once per kernel,
// device and size.
void allow_shared_memory(const void* kernel, const Plan& plan) {
  constexpr int32_t kAlwaysAllowed = 40 * 1024;
  if (plan.shared_bytes <= kAlwaysAllowed) return;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice", plan);
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int32_t> allowed;
  const std::lock_guard<std::mutex> lock(mutex);
  int32_t& known = allowed[{kernel, device}];
  if (known >= plan.shared_bytes) return;  // the opt-in must never lower what another thread's launch asks for
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes),
        "the shared memory opt-in", plan);
  known = plan.shared_bytes;
}

}  // namespace

void launch_kernel(const void* kernel, const Plan& plan, void** arguments, cudaStream_t stream, bool waits_itself,
                   int32_t cluster) {
  allow_shared_memory(kernel, plan);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<uint32_t>(plan.num_blocks));
  config.blockDim = dim3(static_cast<uint32_t>(plan.threads));
  config.dynamicSmemBytes = plan.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (waits_itself) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& clusters = attributes[config.numAttrs++];
    clusters.id = cudaLaunchAttributeClusterDimension;
    clusters.val.clusterDim.x = cluster;
    clusters.val.clusterDim.y = clusters.val.clusterDim.z = 1;
  }
  check(cudaLaunchKernelExC(&config, kernel, arguments), "the launch", plan);
}

bool can_launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers) {
  const void* source = problem.direction == Direction::kForward ? pointers.x : pointers.y;
  const void* result = problem.direction == Direction::kForward ? pointers.y : pointers.x;
  return (!plan.source_on_vectors || is_aligned(source, 16)) &&
         (!plan.weight_on_vectors || is_aligned(pointers.w, 16)) && (!plan.result_on_vectors || is_aligned(result, 16));
}

namespace {

void launch_engine(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  switch (plan.engine) {
    case Engine::kSimt: return launch_simt(problem, plan, pointers, stream);
    case Engine::kThin: return launch_thin(problem, plan, pointers, stream);
    case Engine::kWgmma: return launch_wgmma(problem, plan, pointers, stream);
    case Engine::kFlat: return launch_flat(problem, plan, pointers, stream);
    case Engine::kPatch: return launch_patch(problem, plan, pointers, stream);
    case Engine::kMma: return launch_mma(problem, plan, pointers, stream);
    case Engine::kStrided: return launch_strided(problem, plan, pointers, stream);
    case Engine::kWindow: return launch_window(problem, plan, pointers, stream);
    case Engine::kNhwc: return launch_nhwc(problem, plan, pointers, stream);
    case Engine::kScatter: return launch_scatter(problem, plan, pointers, stream);
    case Engine::kUpsample: return launch_upsample(problem, plan, pointers, stream);
  }
  throw std::runtime_error("convt_ext: no engine number " + std::to_string(static_cast<int32_t>(plan.engine)));
}

}  // namespace

void launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  try {
    launch_engine(problem, plan, pointers, stream);
  } catch (const TensorMapError& error) {
    throw std::runtime_error(std::string(error.what()) + ". It is a tensor map of " + plan.kernel + "'s, " +
                             describe(problem) + ". This is a mistake of the planner's: please report it");
  }
}

}  // namespace convt
