#include "launch/launch.h"

#include <atomic>
#include <stdexcept>
#include <string>

#include "plan/shared_layout.h"
#include "plan/tile.h"
#include "problem/fuse.h"
#include "simt/instances.h"
#include "simt/params.h"

namespace convt {
namespace {

using KernelSymbol = const void* (*)();

constexpr KernelSymbol kKernels[] = {
#define CONVT_ROW(symbol, ...) &simt::symbol,
    CONVT_SIMT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

void check(cudaError_t status, const char* what, const Plan& plan) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // the error is reported here; it must not surface again in somebody else's call
  std::string message = std::string("convt_ext: ") + what + " of " + kInstances[plan.instance].name +
                        " failed: " + cudaGetErrorString(status) + " (threads " + std::to_string(plan.threads) +
                        ", blocks " + std::to_string(plan.num_blocks) + ", shared memory " +
                        std::to_string(plan.shared_bytes) + " bytes)";
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    message += ". This build of convt_ext has no machine code for this GPU: see `python -m convt_ext info`";
  }
  throw std::runtime_error(message);
}

// Shared memory above 48 KiB, the kernel's static tables included, needs an opt-in, once per kernel,
// device and size.
void allow_shared_memory(const void* kernel, const Plan& plan) {
  constexpr int kMaxDevices = 64;
  static std::atomic<int32_t> allowed[kNumInstances][kMaxDevices];
  constexpr int32_t kAlwaysAllowed = 40 * 1024;
  if (plan.shared_bytes <= kAlwaysAllowed) return;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice", plan);
  std::atomic<int32_t>* known = device < kMaxDevices ? &allowed[plan.instance][device] : nullptr;
  if (known != nullptr && known->load(std::memory_order_acquire) >= plan.shared_bytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes),
        "the shared memory opt-in", plan);
  // Another thread may have allowed more meanwhile; remembering less only costs a repeated opt-in, but
  // that opt-in must not lower the limit below what a launch in flight asks for.
  if (known != nullptr) {
    int32_t previous = known->load(std::memory_order_acquire);
    while (previous < plan.shared_bytes && !known->compare_exchange_weak(previous, plan.shared_bytes)) {
    }
    if (previous > plan.shared_bytes) {
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, previous),
            "the shared memory opt-in", plan);
    }
  }
}

int32_t log2_of(int32_t power_of_two) {
  int32_t log2 = 0;
  while ((1 << log2) < power_of_two) ++log2;
  return log2;
}

bool aligned_16(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// float32 alone: other types are converted on the way.
bool has_input_vectors(const ConvTProblem& problem, const void* x) {
  const int64_t* stride = problem.x_stride;
  return problem.dtype == DataType::kFloat32 && aligned_16(x) && stride[3] == 1 && stride[0] % 4 == 0 &&
         stride[1] % 4 == 0 && stride[2] % 4 == 0 && problem.w.in % 4 == 0;
}

// Every phase must use every tap, and a stage all of them.
bool has_weight_vectors(const ConvTProblem& problem, const Plan& plan, const void* w) {
  const int64_t* stride = problem.w_stride;
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel;
  return problem.dtype == DataType::kFloat32 && aligned_16(w) && problem.h.stride == 1 && problem.w.stride == 1 &&
         plan.chunk_kh >= problem.h.kernel && plan.chunk_kw >= problem.w.kernel && stride[3] == 1 &&
         stride[2] == problem.w.kernel && stride[1] == taps && stride[0] % 4 == 0 && plan.block_co * taps % 4 == 0 &&
         problem.c_out / problem.groups * taps % 4 == 0;
}

}  // namespace

void launch_forward(const ConvTProblem& problem, const Plan& plan, const ForwardPointers& pointers,
                    cudaStream_t stream) {
  if (plan.instance < 0 || plan.instance >= kNumInstances) {
    throw std::runtime_error("convt_ext: no kernel instance number " + std::to_string(plan.instance));
  }
  const Instance& instance = kInstances[plan.instance];
  if (instance.dtype != problem.dtype) {
    throw std::runtime_error(std::string("convt_ext: ") + instance.name + " does not compute in " +
                             name_of(problem.dtype));
  }
  simt::Params params{};
  params.x = pointers.x;
  params.w = pointers.w;
  params.bias = pointers.bias;
  params.y = pointers.y;
  const ConvTProblem computed = plan.fused_w > 1 ? fuse_phases(problem) : problem;
  params.problem = computed;
  params.shape = TileShape{plan.block_co, plan.tile_n, plan.tile_h, plan.tile_w, plan.phases_w};
  params.grid = make_tile_grid(computed, params.shape);
  make_shared_layout(computed, plan, &params.shared);
  params.columns = OutputColumns{problem.w.stride, plan.fused_w > 1 ? problem.w.padding : 0, problem.w.out,
                                 plan.fused_w > 1 ? plan.fused_w : plan.phases_w};
  params.fused_log2 = log2_of(plan.fused_w);
  params.weight_phase_stride = problem.w_stride[3];
  params.group_c_in = static_cast<int32_t>(problem.c_in / problem.groups);
  params.group_c_out = static_cast<int32_t>(computed.c_out / computed.groups);
  params.chunk_ci = plan.chunk_ci;
  params.chunk_kh = plan.chunk_kh;
  params.chunk_kw = plan.chunk_kw;
  params.stages = plan.stages;
  params.channel_groups_log2 = log2_of(plan.block_co / instance.thread_co);
  params.channels_last_input = problem.x_stride[1] == 1 && problem.x_stride[3] != 1;
  params.channels_last_output = problem.y_stride[1] == 1 && problem.y_stride[3] != 1;
  params.input_vectors = has_input_vectors(computed, pointers.x);
  params.weight_vectors = has_weight_vectors(computed, plan, pointers.w);

  const void* kernel = kKernels[plan.instance]();
  allow_shared_memory(kernel, plan);
  void* arguments[] = {&params};
  check(cudaLaunchKernel(kernel, dim3(static_cast<uint32_t>(plan.num_blocks)), dim3(plan.threads), arguments,
                         plan.shared_bytes, stream),
        "the launch", plan);
}

}  // namespace convt
