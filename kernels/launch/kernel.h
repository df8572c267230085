// Puts a kernel into a stream: grid, shared memory, attributes and arguments; and what CUDA says of it, in words.
// Called by the launchers of the engines, and by reduce/launch.cpp; the words by binding/, too. Must not know: torch,
// plans' tiles.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "plan/plan.h"

namespace convt {

struct Grid {
  const char* name;  // of the kernel, in errors
  int64_t blocks;
  dim3 threads;
  int32_t shared_bytes = 0;  // dynamic; may need an opt-in
  // The CTAs may begin before the stream's kernel before this one has ended: sm_90 and newer. What reads that kernel's
  // results waits for it (ptx::wait_for_previous_kernel), so it must be our own.
  bool waits_itself = false;
  int32_t cluster = 1;  // so many neighbouring CTAs reach each other's shared memory
};

// The plan's own.
inline Grid grid_of(const Plan& plan, bool waits_itself = false, int32_t cluster = 1) {
  return {plan.kernel,       plan.num_blocks, dim3(static_cast<uint32_t>(plan.threads)),
          plan.shared_bytes, waits_itself,    cluster};
}

struct KernelArgument {
  const void* data;
  size_t bytes;
};

// Throws std::runtime_error naming the kernel.
void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t stream,
                   std::initializer_list<KernelArgument> arguments);

// The kernel's parameters are of exactly these types.
template <typename... Arguments>
void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t stream, const Arguments&... arguments) {
  launch_kernel(kernel, grid, stream, {KernelArgument{&arguments, sizeof(arguments)}...});
}

// Zeros for the kernel that is launched next, which must not begin before all that the stream holds has ended; the
// plan's kernel names it in errors. Throws std::runtime_error.
void fill_zero(void* memory, int64_t bytes, const char* kernel, cudaStream_t stream);

// Whether `status` tells of a kernel that ran before: such an error is found by whichever call comes next.
bool is_of_earlier_kernel(cudaError_t status);

// "CUDA error: ...", as PyTorch begins such messages; the Python side makes PyTorch's type of exception of it.
std::string words_of_earlier_kernel(cudaError_t status);

// Throws std::runtime_error with those words, or with `what` and CUDA's reason, unless `status` is success.
void check_launch(cudaError_t status, const std::string& what);

}  // namespace convt
