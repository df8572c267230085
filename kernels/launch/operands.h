// Operands that several engines prepare: packed weights and tensor maps (CUDA driver API, "Tensor Map Object
// Management"), and the vector widths that addresses permit.
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

// Parameters of the weight packing, and its number of CTAs.
struct PackLaunch {
  pack::Params params;
  int64_t blocks;
};
// Tiles have `block_n` result channels, `num_chunks` stages of `k_steps` steps of K, and `tap_bytes` per tap and stage.
PackLaunch make_pack_launch(const ConvTProblem& problem, const TapProgram& program, int32_t block_n, int32_t k_steps,
                            int32_t num_chunks, int32_t tap_bytes, const void* w, void* packed);

// Throws std::runtime_error if the plan needs a workspace in addition to its packed weight and there is none.
void check_workspace(const Plan& plan, const void* workspace);

// Launches the packing kernel. Errors name the plan.
void launch_pack(const ConvTProblem& problem, const Plan& plan, const PackLaunch& packing, cudaStream_t stream);

// Packs the first `images` images of a tensor with any strides as pixels. Errors name the plan. float32 is rounded to
// TF32, except in tf32x3 and if `rounds` is false, when the reader rounds.
void launch_pack_pixels(const ConvTProblem& problem, const Plan& plan, const Pixels& packed_as, const int64_t* stride,
                        int64_t images, const void* tensor, void* packed, cudaStream_t stream, bool rounds = true);

// Packs such images as NCHW rows.
void launch_pack_rows(const ConvTProblem& problem, const Plan& plan, int64_t channels, int32_t rows, int32_t columns,
                      const int64_t* stride, int64_t images, const void* tensor, void* packed, cudaStream_t stream);

// Number of contiguous results per vector store, 1 to 8: addresses of all rows, channels, groups and images are
// multiples of it. Contiguous results are channels in channels_last, columns in NCHW.
int32_t storable_neighbours(const ConvTProblem& problem, const void* result);

// Whether a thread can access `count` contiguous elements along `axis` (1: channels, 3: columns) in vectors of at most
// 16 bytes, from every multiple of `count` on.
bool has_vectors(const void* tensor, const int64_t (&stride)[4], int axis, int32_t count, DataType dtype);

// CUDA rejected a tensor map. launch() adds the kernel and the problem to the message.
struct TensorMapError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws TensorMapError, or std::runtime_error if the driver does not support tensor maps.
CUtensorMap make_tensor_map(DataType dtype, const TensorBox& tensor);

}  // namespace convt
