// What each engine adds to the candidates of a problem: nothing where it has no kernel for it.
// Called by candidate_plans(). Must not know: torch, CUDA, the other engines.
#pragma once

#include <vector>

#include "plan/device.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// Throws std::invalid_argument for a class that has no order of sums in the problem's dtype.
void add_simt_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// The simt engine's kernels of the gradient of the weight; called by add_simt_plans().
void add_simt_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Thin layers, class ieee, without float64.
void add_thin_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of the gradient of the input; called by add_thin_plans().
void add_thin_grad_input_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of the gradient of the weight; called by add_thin_plans().
void add_thin_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// The same by outer products, in channels_last; called by add_thin_plans().
void add_thin_outer_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of depthwise layers, in all directions; called by add_thin_plans().
void add_thin_depthwise_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of depthwise layers in channels_last; called by add_thin_plans().
void add_thin_channels_last_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of small layers, forward and the gradient of the input; called by add_thin_plans().
void add_thin_direct_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of small layers' gradients of the weight; called by add_thin_plans().
void add_thin_direct_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of gathered terms, forward and the gradient of the input; called by add_thin_plans().
void add_thin_gather_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels of streamed sources, forward and the gradient of the input; called by add_thin_plans().
void add_thin_streamed_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Nothing but tensor-core classes on GPUs that have wgmma.
void add_wgmma_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// The same without tf32x3, for results of 1, 2 or 4 W phases.
void add_flat_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// The same, with tf32x3, for layers whose kernel is their stride: 2 wide and even, or a multiple of 4 wide; and for
// their gradients of the input.
void add_patch_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels for weights as they are, forward in NCHW; called by add_patch_plans().
void add_patch_direct_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Its kernels for runs of grad_output and weights as they are, gradients of the input in NCHW; called by
// add_patch_plans().
void add_patch_runs_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// The same in NCHW for 4 x 4 and 3 x 3 kernels of stride 2 and padding 1 that double an image, and their gradients of
// the input.
void add_strided_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Few channels in tensor-core classes, NCHW results: forward passes.
void add_mma_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// The same by tiles of whole rows of a dense result; called by add_mma_plans().
void add_mma_rows_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// And gradients of the input, in both layouts; called by add_mma_plans().
void add_mma_grad_input_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// And gradients of the weight, of operands whose columns or channels are neighbours; called by add_mma_plans().
void add_mma_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Layers without stride or dilation whose kernels have kWindowKernelH rows, in NCHW.
void add_window_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Tensor-core classes in channels_last without groups, channels on 16 bytes.
void add_nhwc_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Few output channels in tensor-core classes, in both layouts, forward; source rows begin on 16 bytes.
void add_scatter_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// Few channels and kernels two strides wide in tensor-core classes, NCHW, forward.
void add_upsample_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

}  // namespace convt
