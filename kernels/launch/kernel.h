// Launches a kernel into a stream (grid, shared memory, attributes, arguments), and formats CUDA errors. Called by the
// engines' launchers and by reduce/launch.cpp; binding/ uses the error texts. Must not know: torch, plans' tiles.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "plan/plan.h"

namespace convt {

struct Grid {
  const char* name;  // kernel name in error texts
  int64_t blocks;
  dim3 threads;
  int32_t shared_bytes = 0;  // dynamic shared memory; may need an opt-in
  // Programmatic dependent launch (sm_90 and newer): CTAs may start before the stream's previous kernel has ended. Code
  // that reads its results calls ptx::wait_for_previous_kernel(), so it must be a kernel of convt_ext.
  bool waits_itself = false;
  int32_t cluster = 1;  // CTAs per cluster
};

// The launch size of a plan.
inline Grid grid_of(const Plan& plan, bool waits_itself = false, int32_t cluster = 1) {
  return {plan.kernel,       plan.num_blocks, dim3(static_cast<uint32_t>(plan.threads)),
          plan.shared_bytes, waits_itself,    cluster};
}

struct KernelArgument {
  const void* data;
  size_t bytes;
};

// Throws std::runtime_error with the kernel's name.
void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t stream,
                   std::initializer_list<KernelArgument> arguments);

// `Arguments` must be exactly the kernel's parameter types.
template <typename... Arguments>
void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t stream, const Arguments&... arguments) {
  launch_kernel(kernel, grid, stream, {KernelArgument{&arguments, sizeof(arguments)}...});
}

// Zeros memory for the next kernel, which must start after all previous work of the stream. `kernel`: name in errors.
// Throws std::runtime_error.
void fill_zero(void* memory, int64_t bytes, const char* kernel, cudaStream_t stream);

// Whether `status` is an error of an earlier kernel, which CUDA reports in whichever call follows.
bool is_of_earlier_kernel(cudaError_t status);

// "CUDA error: ...", the start of PyTorch's messages, from which the Python side makes PyTorch's exception type.
std::string words_of_earlier_kernel(cudaError_t status);

// Unless `status` is success, throws std::runtime_error with that text, or with `what` and CUDA's reason.
void check_launch(cudaError_t status, const std::string& what);

}  // namespace convt
