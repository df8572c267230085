#include "launch/operands.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/launcher.h"
#include "plan/tap_program.h"

namespace convt {

PackLaunch make_pack_launch(const ConvTProblem& problem, const TapProgram& program, int32_t block_n, int32_t k_steps,
                            int32_t num_chunks, int32_t tap_bytes, const void* w, void* packed) {
  const bool forward = problem.direction == Direction::kForward;
  const GemmShape gemm = make_gemm_shape(problem);
  PackLaunch launch{};
  pack::Params& params = launch.params;
  params.w = w;
  params.packed = packed;
  params.k_stride = problem.w_stride[forward ? 0 : 1];
  params.n_stride = problem.w_stride[forward ? 1 : 0];
  params.group_stride = problem.c_in / problem.groups * problem.w_stride[0];
  params.kh_stride = problem.w_stride[2];
  params.kw_stride = problem.w_stride[3];
  params.groups = static_cast<int32_t>(problem.groups);
  params.k_channels = gemm.k_channels;
  params.n_channels = gemm.n_channels;
  params.channel_tiles = ceil_div(gemm.n_channels, block_n);
  params.block_n = block_n;
  params.k_steps = k_steps;
  params.num_chunks = num_chunks;
  params.tap_bytes = tap_bytes;
  params.interleaved = 1;
  const int64_t all_chunks = int64_t{num_chunks} * tap_bytes;  // of one tap
  params.packed_tile_step = program.total_taps * all_chunks;
  for (int32_t phase = 0; phase < program.phases_h; ++phase) {
    params.packed_phase_begin[phase] = program.taps_before[phase] * all_chunks;
  }
  params.program = program;
  params.column_blocks = block_n / pack::kPackColumns;
  // Taps that share a 32-byte sector should be packed by one CTA, but there should also be many CTAs.
  constexpr int64_t kEnoughBlocks = 256;
  const int64_t steps = problem.groups * params.channel_tiles * num_chunks * k_steps * params.column_blocks;
  params.block_taps = std::max(1, std::min(program.total_taps, pack::kPackTaps));  // total_taps may be 0
  while (params.block_taps > 4 && steps * ceil_div(program.total_taps, params.block_taps) < kEnoughBlocks) {
    params.block_taps /= 2;
  }
  while (1 << params.taps_log2 < params.block_taps) ++params.taps_log2;
  params.tap_blocks = ceil_div(program.total_taps, params.block_taps);
  // Whether channels of K or N are contiguous, in aligned vectors of 16 bytes.
  const int64_t vector = 16 / element_bytes(problem.dtype);
  if (is_aligned(w, 16) && (params.kh_stride | params.kw_stride) % vector == 0) {
    params.k_vectors = params.k_stride == 1 && (params.n_stride | params.k_channels) % vector == 0;
    params.n_vectors = params.n_stride == 1 && (params.k_stride | params.n_channels) % vector == 0;
  }
  // If taps are contiguous in memory, 16 bytes can be read at a time.
  const bool together = problem.h.kernel == problem.w.kernel && params.kw_stride == 1 &&
                        params.kh_stride == problem.w.kernel &&
                        program.total_taps == problem.h.kernel * problem.w.kernel && is_aligned(w, 16) &&
                        params.group_stride % vector == 0;
  params.whole_taps = together && problem.h.kernel == 4 && (params.k_stride | params.n_stride) % vector == 0;
  // In the forward pass result channels have the smaller stride. Packing one tap of a whole stage is then as fast as
  // packing several taps, if a stage has several steps.
  const bool by_vectors = params.k_vectors || params.n_vectors;
  params.by_blocks = params.whole_taps || (!by_vectors && program.total_taps > 4 && (!forward || k_steps == 1));
  // In a 3 x 3 kernel single channels are unaligned, but runs of channels are aligned.
  const bool columns_first = params.n_stride < params.k_stride;
  const int64_t run = columns_first ? params.n_channels : params.k_channels;
  params.whole_runs = params.by_blocks && together && problem.h.kernel == 3 &&
                      std::min(params.n_stride, params.k_stride) == 9 && run * 9 % vector == 0 &&
                      std::max(params.n_stride, params.k_stride) % vector == 0;
  if (params.whole_taps || params.whole_runs) {
    params.block_taps = program.total_taps;
    params.tap_blocks = 1;
  }
  launch.blocks = params.by_blocks ? steps * params.tap_blocks
                                   : problem.groups * params.channel_tiles * num_chunks * program.total_taps;
  const int64_t vectors = problem.groups * params.packed_tile_step * params.channel_tiles / 16;
  if (together && problem.h.kernel == 2 && (params.k_stride | params.n_stride) % 4 == 0 && vectors < (1 << 30)) {
    params.four_taps = true;
    launch.blocks = ceil_div(problem.groups * params.channel_tiles * num_chunks * k_steps * 2 * block_n,
                             int64_t{pack::kPackThreads});
  }
  return launch;
}

void check_workspace(const Plan& plan, const void* workspace) {
  if (workspace == nullptr && plan.workspace_bytes > plan.packed_bytes) {
    throw std::runtime_error(std::string("convt_ext: no workspace for ") + plan.kernel);
  }
}

void launch_pack(const ConvTProblem& problem, const Plan& plan, const PackLaunch& packing, cudaStream_t stream) {
  launch_kernel(pack::pack_weights(problem.dtype, problem.precision),
                Grid{plan.kernel, packing.blocks, dim3(pack::kPackThreads)}, stream, packing.params);
}

void launch_pack_pixels(const ConvTProblem& problem, const Plan& plan, const Pixels& packed_as, const int64_t* stride,
                        int64_t images, const void* tensor, void* packed, cudaStream_t stream, bool rounds) {
  pack::PackPixelsParams params{};
  params.source = tensor;
  params.packed = packed;
  std::copy_n(stride, 4, params.stride);
  params.num_pixels = static_cast<int32_t>(images * packed_as.rows * packed_as.columns);
  params.channels = packed_as.channels;
  params.all_vectors = static_cast<int32_t>(problem.groups) * packed_as.vectors;
  params.channels_inner = is_channels_last(stride);
  params.rounds = rounds && problem.precision != Precision::kTf32x3;
  params.by_columns = FastDivmod::of(packed_as.columns);
  params.by_rows = FastDivmod::of(packed_as.rows);
  params.by_group = FastDivmod::of(packed_as.vectors * elements_of_vector(problem.dtype));
  params.by_vector_tiles = FastDivmod::of(ceil_div(params.all_vectors, kPackTileVectors));
  const int64_t blocks = int64_t{ceil_div(params.num_pixels, kPackTilePixels)} * params.by_vector_tiles.value;
  launch_kernel(pack::pack_pixels(problem.dtype), Grid{plan.kernel, blocks, dim3(kPackTileThreads), kPackTileBytes},
                stream, params);
}

void launch_pack_rows(const ConvTProblem& problem, const Plan& plan, int64_t channels, int32_t rows, int32_t columns,
                      const int64_t* stride, int64_t images, const void* tensor, void* packed, cudaStream_t stream) {
  pack::PackRowsParams params{};
  int64_t packed_stride[4];
  packed_rows(problem.dtype, channels, rows, columns, packed_stride);
  params.source = tensor;
  params.packed = packed;
  std::copy_n(stride, 4, params.stride);
  const int64_t vector = elements_of_vector(problem.dtype);
  params.columns = columns;
  params.num_vectors = static_cast<int32_t>(images * packed_stride[0] / vector);
  params.by_vectors = FastDivmod::of(static_cast<int32_t>(packed_stride[2] / vector));
  params.by_rows = FastDivmod::of(rows);
  params.by_channels = FastDivmod::of(static_cast<int32_t>(channels));
  const int64_t blocks = ceil_div(params.num_vectors, kPackRowsThreads);
  launch_kernel(pack::pack_rows(problem.dtype), Grid{plan.kernel, blocks, dim3(kPackRowsThreads)}, stream, params);
}

int32_t storable_neighbours(const ConvTProblem& problem, const void* result) {
  const int64_t* stride = result_stride(problem);
  const int64_t bytes = element_bytes(problem.dtype);
  const bool channels_last = is_channels_last(stride);
  if (!channels_last && stride[3] != 1) return 1;
  const int64_t group = problem.groups == 1 ? 0 : make_gemm_shape(problem).n_channels;
  const int64_t channels = problem.direction == Direction::kForward ? problem.c_out : problem.c_in;
  const int64_t channel_stride = channels > 1 ? stride[1] : 0;  // a single channel's stride is irrelevant
  const int64_t others = stride[0] | stride[2] | (channels_last ? stride[3] | group : channel_stride);
  int32_t unit = 8;
  while (unit > 1 && (others % unit != 0 || !is_aligned(result, std::min<int64_t>(unit * bytes, 16)))) {
    unit /= 2;
  }
  return unit;
}

bool has_vectors(const void* tensor, const int64_t (&stride)[4], int axis, int32_t count, DataType dtype) {
  const int64_t bytes = std::min<int64_t>(count * element_bytes(dtype), 16);
  if (stride[axis] != 1 || !is_aligned(tensor, bytes)) return false;
  for (int other = 0; other < 4; ++other) {
    if (other != axis && stride[other] * element_bytes(dtype) % bytes != 0) return false;
  }
  return true;
}

namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// Queried from the loaded driver, so that nothing links against libcuda.
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
    cudaGetLastError();  // already reported here
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
    case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
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
    // The stride of a single element is irrelevant and may be any legal value.
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
