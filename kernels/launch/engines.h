// The launchers of the engines, and what they share. Called by launch().
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "launch/kernel.h"
#include "launch/launch.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// Tensors may begin anywhere; copies of several elements may not.
inline bool is_aligned(const void* address, int64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

void launch_simt(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// The simt engine's gradient of the weight; called by launch_simt().
void launch_simt_grad_weight(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                             cudaStream_t stream);

void launch_thin(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// The thin engine's gradient of the input; called by launch_thin().
void launch_thin_grad_input(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                            cudaStream_t stream);

// The thin engine's depthwise layers, in all directions; called by launch_thin().
void launch_thin_depthwise(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                           cudaStream_t stream);

// The thin engine's depthwise layers in channels_last; called by launch_thin().
void launch_thin_channels_last(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                               cudaStream_t stream);

// The thin engine's small layers; called by launch_thin().
void launch_thin_direct(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// The thin engine's gathered terms and its streamed sources; called by launch_thin().
void launch_thin_streamed(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_thin_gather(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// Its gradient of the weight, of other layers; called by launch_thin().
void launch_thin_grad_weight(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                             cudaStream_t stream);

// The same by outer products; called by launch_thin().
void launch_thin_outer_weight(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                              cudaStream_t stream);

void launch_wgmma(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_flat(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_patch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_strided(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_mma(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_window(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_nhwc(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_scatter(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);
void launch_upsample(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// The patch engine's kernels for weights as they are; called by launch_patch().
void launch_patch_direct(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// Its kernels for runs of grad_output; called by launch_patch().
void launch_patch_runs(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// The mma engine's tiles of whole rows; called by launch_mma().
void launch_mma_rows(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// Its gradient of the input; called by launch_mma().
void launch_mma_grad_input(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                           cudaStream_t stream);

// Its gradient of the weight; called by launch_mma().
void launch_mma_grad_weight(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers,
                            cudaStream_t stream);

}  // namespace convt
