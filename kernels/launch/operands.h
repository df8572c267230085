// What the launchers of several engines make of operands: packed weights, descriptions for the copy engine (CUDA driver
// API, "Tensor Map Object Management"), and what their addresses allow.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "pack/params.h"
#include "pack/pixels.h"
#include "pack/rows.h"
#include "plan/plan.h"
#include "plan/tap_program.h"
#include "plan/tensor_map.h"
#include "problem/problem.h"

namespace convt {

// The weights' packing and the number of its blocks.
struct PackLaunch {
  pack::Params params;
  int64_t blocks;
};
// Channel tiles of `block_n` result channels, `num_chunks` stages of `k_steps` steps of K, each tap `tap_bytes` in a
// stage.
PackLaunch make_pack_launch(const ConvTProblem& problem, const TapProgram& program, int32_t block_n, int32_t k_steps,
                            int32_t num_chunks, int32_t tap_bytes, const void* w, void* packed);

// Throws std::runtime_error where a plan has a workspace beside its packed weight, and there is none.
void check_workspace(const Plan& plan, const void* workspace);

// Queues the packing alone, for the plan that names it in errors.
void launch_pack(const ConvTProblem& problem, const Plan& plan, const PackLaunch& packing, cudaStream_t stream);

// Queues the packing of the first `images` images of a tensor of any strides as pixels, for the plan that names it in
// errors. float32 is rounded but for tf32x3, or where `rounds` is false: its reader rounds it.
void launch_pack_pixels(const ConvTProblem& problem, const Plan& plan, const Pixels& packed_as, const int64_t* stride,
                        int64_t images, const void* tensor, void* packed, cudaStream_t stream, bool rounds = true);

// Queues the packing of such images as rows of NCHW.
void launch_pack_rows(const ConvTProblem& problem, const Plan& plan, int64_t channels, int32_t rows, int32_t columns,
                      const int64_t* stride, int64_t images, const void* tensor, void* packed, cudaStream_t stream);

// Neighbours in memory that may be stored together, 1 to 8: addresses of every row, channel, group and image are a
// multiple of theirs. Channels are neighbours in channels_last, columns in NCHW.
int32_t storable_neighbours(const ConvTProblem& problem, const void* result);

// A thread can read or write `count` neighbours along `axis` (1: channels, 3: columns) in vectors of at most 16 bytes,
// from every multiple of `count` on.
bool has_vectors(const void* tensor, const int64_t (&stride)[4], int axis, int32_t count, DataType dtype);

// CUDA refuses to make a tensor map. launch() completes the message: which kernel's, of which problem.
struct TensorMapError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws TensorMapError, or std::runtime_error where the driver cannot make any.
CUtensorMap make_tensor_map(DataType dtype, const TensorBox& tensor);

}  // namespace convt
