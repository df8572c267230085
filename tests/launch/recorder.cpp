// In the place of CUDA and of the compiled kernels: launch_kernel() writes down what it is given, kernels are their
// names, and a tensor map is what it was asked for. So the launchers run on any machine, and what two versions of them
// do can be compared byte for byte.
#include "launch/recorder.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <utility>

#include "correlate_sm90a/instances.h"
#include "depthwise/instances.h"
#include "direct/instances.h"
#include "epilogue/pass.h"
#include "flat_sm90a/instances.h"
#include "launch/kernel.h"
#include "launch/tensor_map_rules.h"
#include "mma_sm90a/instances.h"
#include "nhwc_sm90a/instances.h"
#include "patch_sm90a/instances.h"
#include "portable/instances.h"
#include "reduce/kernels.h"
#include "rows_sm90a/instances.h"
#include "scatter_sm90a/instances.h"
#include "simt/instances.h"
#include "streamed/instances.h"
#include "thin/instances.h"

static thread_local std::vector<RecordedLaunch> launches;

std::vector<RecordedLaunch> take_launches() { return std::exchange(launches, {}); }

namespace convt {

void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t,
                   std::initializer_list<KernelArgument> arguments) {
  RecordedLaunch launch{static_cast<const char*>(kernel),
                        grid.name,
                        grid.blocks,
                        grid.threads.x,
                        grid.threads.y,
                        grid.shared_bytes,
                        grid.waits_itself,
                        grid.cluster,
                        {}};
  for (const KernelArgument& argument : arguments) {
    launch.arguments.emplace_back(static_cast<const char*>(argument.data), argument.bytes);
  }
  launches.push_back(std::move(launch));
}

void fill_zero(void* memory, int64_t bytes, const char* kernel, cudaStream_t stream) {
  launch_kernel("zeros", Grid{kernel, 1, dim3(1)}, stream, memory, bytes);
}

// Where several files compile a list, a file's function returns null for the rows of the others.
template <typename Row>
const char* name_if(bool compiled, const Row& row) {
  return compiled ? row.name : nullptr;
}

namespace simt {
const void* kernel_of_co8(int32_t instance) {
  return name_if(kInstances[instance].thread_co == 8, kInstances[instance]);
}
const void* kernel_of_co2(int32_t instance) {
  return name_if(kInstances[instance].thread_co == 2, kInstances[instance]);
}
const void* grad_weight_kernel_of(int32_t instance) { return kGradWeightInstances[instance].name; }
}  // namespace simt

namespace thin {
const void* kernel_of(int32_t instance) { return kThinInstances[instance].name; }
const void* grad_input_kernel_of(int32_t instance) { return kThinGradInputInstances[instance].name; }
const void* grad_weight_kernel_of(int32_t instance) { return kThinGradWeightInstances[instance].name; }
const void* outer_weight_kernel_of(int32_t instance) { return kThinOuterWeightInstances[instance].name; }
}  // namespace thin

namespace depthwise {
const void* kernel_of(int32_t instance) { return kThinDepthwiseInstances[instance].name; }
const void* channels_last_kernel_of(int32_t instance) { return kThinChannelsLastInstances[instance].name; }
}  // namespace depthwise

namespace direct {
const void* kernel_of(int32_t instance) { return kThinDirectInstances[instance].name; }
}  // namespace direct

namespace streamed {
const void* kernel_of(int32_t instance) { return kThinStreamedInstances[instance].name; }
const void* gather_kernel_of(int32_t instance) { return kThinGatherInstances[instance].name; }
}  // namespace streamed

namespace mma_sm90a {
const void* kernel_of(int32_t instance) { return kMmaInstances[instance].name; }
const void* rows_kernel_of(int32_t instance) { return kMmaRowsInstances[instance].name; }
const void* grad_input_kernel_of(int32_t instance) { return kMmaGradInputInstances[instance].name; }
const void* grad_weight_kernel_of(int32_t instance) { return kMmaGradWeightInstances[instance].name; }
}  // namespace mma_sm90a

namespace patch_sm90a {
const void* kernel_of(int32_t instance) { return kPatchInstances[instance].name; }
const void* direct_kernel_of(int32_t instance) { return kPatchDirectInstances[instance].name; }
const void* runs_kernel_of(int32_t instance) { return kPatchRunsInstances[instance].name; }
}  // namespace patch_sm90a

namespace pack {
const void* pack_pixels(DataType) { return "pixels"; }
const void* pack_rows(DataType) { return "rows"; }
const void* pack_weights(DataType, Precision) { return "weights pack"; }
}  // namespace pack

namespace portable {
const void* kernel_of(int32_t instance) { return kPortableInstances[instance].name; }
const void* grad_weight_kernel_of(int32_t instance) { return kPortableGradWeightInstances[instance].name; }
const void* pack_weights(DataType) { return "weights pack"; }
}  // namespace portable

namespace scatter_sm90a {
const void* kernel_of(int32_t instance) { return kScatterInstances[instance].name; }
}  // namespace scatter_sm90a

namespace correlate_sm90a {
const void* pixels_kernel_of(int32_t instance) {
  const CorrelateInstance& row = kCorrelateInstances[instance];
  return name_if(row.form == CorrelateForm::kPixels, row);
}
const void* rows_kernel_of(int32_t instance) {
  const CorrelateInstance& row = kCorrelateInstances[instance];
  return name_if(row.form != CorrelateForm::kPixels, row);
}
}  // namespace correlate_sm90a

namespace flat_sm90a {
const void* kernel_of(int32_t instance) { return kFlatInstances[instance].name; }
const void* pack_operands(DataType) { return "operands pack"; }
}  // namespace flat_sm90a

namespace rows_sm90a::strided {
const void* kernel_of(int32_t instance) { return kStridedInstances[instance].name; }
}  // namespace rows_sm90a::strided

namespace rows_sm90a::window {
const void* kernel_of(int32_t instance) { return kWindowInstances[instance].name; }
}  // namespace rows_sm90a::window

namespace nhwc_sm90a {
const void* kernel_of(int32_t instance) { return kNhwcInstances[instance].name; }
}  // namespace nhwc_sm90a

namespace reduce {
const void* add_slabs(DataType) { return "add_slabs"; }
const void* add_taps(DataType) { return "add_taps"; }
const void* add_few_slabs(DataType, bool together) { return together ? "add_few_slabs together" : "add_few_slabs"; }
const void* channel_sums(DataType) { return "channel_sums"; }
}  // namespace reduce

namespace epilogue {
const void* run_pass(DataType) { return "run_pass"; }
}  // namespace epilogue

}  // namespace convt

namespace {

CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
  if (!is_legal_map(rank, address, sizes, strides, box, steps)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof(*map));
  cuuint64_t* words = map->opaque;  // 16
  words[0] = reinterpret_cast<uintptr_t>(address);
  words[1] = uint64_t{rank} << 48 | static_cast<uint64_t>(type) << 32 | static_cast<uint64_t>(swizzle) << 16 |
             static_cast<uint64_t>(promotion);
  for (cuuint32_t i = 0; i < rank; ++i) {
    words[2 + i] = sizes[i] << 24 ^ (uint64_t{box[i]} << 8 | steps[i]);
    if (i > 0) words[6 + i] = strides[i - 1];
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(&encode);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of no GPU"; }
}
