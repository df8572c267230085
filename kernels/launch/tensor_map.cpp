#include "launch/tensor_map.h"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace convt {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// From the driver that the runtime has loaded, so that nothing links against it.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // the error is reported here
    throw std::runtime_error("convt_ext: the driver has no cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<Encode>(function);
}

CUtensorMapDataType element_of(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DataType::kFloat64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DataType::kFloat16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DataType::kBFloat16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
  throw std::runtime_error("convt_ext: no tensor map of this dtype");
}

CUtensorMapSwizzle swizzle_of(const TensorBox& tensor) {
  switch (tensor.swizzle_bytes) {
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    default: return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

CUtensorMapL2promotion promotion_of(const TensorBox& tensor) {
  switch (tensor.fetched_bytes) {
    case 64: return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
    case 128: return CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    default: return CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  }
}

}  // namespace

CUtensorMap make_tensor_map(DataType dtype, const TensorBox& tensor) {
  static const Encode encode = find_encode();
  cuuint64_t sizes[5], strides[4];
  cuuint32_t box[5], steps[5];
  for (int i = 0; i < tensor.rank; ++i) {
    sizes[i] = tensor.sizes[i];
    steps[i] = tensor.step[i];
    box[i] = (tensor.box[i] - 1) * tensor.step[i] + 1;
    // The stride of a single element says nothing, and may be anything that a map allows.
    if (i > 0) strides[i - 1] = tensor.sizes[i] > 1 ? tensor.strides[i - 1] * element_bytes(dtype) : 16;
  }
  CUtensorMap map;
  const CUresult result =
      encode(&map, tensor.rounded ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : element_of(dtype), tensor.rank,
             const_cast<void*>(tensor.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle_of(tensor), promotion_of(tensor), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw TensorMapError("convt_ext: cuTensorMapEncodeTiled failed with error " + std::to_string(result) + " for " +
                         describe(dtype, tensor));
  }
  return map;
}

}  // namespace convt
