// Replaces the driver, which encodes tensor maps, and the TMA unit, which copies their boxes.
#include "emulator/tensor_map.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/asynchronous.h"
#include "emulator/device.h"
#include "emulator/fibers.h"
#include "launch/tensor_map_rules.h"
#include "ptx/wgmma_sm90a.cuh"

namespace emulator {
namespace {

constexpr int kMostRank = 5;

struct Map {
  char* data;
  uint64_t strides[kMostRank];  // bytes
  uint64_t sizes[kMostRank];
  uint16_t box[kMostRank];  // copied elements per dimension
  uint8_t steps[kMostRank];
  uint8_t rank, element_bytes, swizzle_bytes;
  bool is_rounded;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap));

int bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: return 4;
    default: return 0;
  }
}

CUresult encode(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const int bytes = bytes_of(type);
  if (bytes == 0 || rank < 3 || !is_legal_map(rank, data, sizes, strides, box, steps)) return CUDA_ERROR_INVALID_VALUE;
  Map map{};
  map.data = static_cast<char*>(data);
  for (cuuint32_t i = 0; i < rank; ++i) {
    map.sizes[i] = sizes[i];
    map.strides[i] = i == 0 ? bytes : strides[i - 1];
    map.box[i] = static_cast<uint16_t>((box[i] + steps[i] - 1) / steps[i]);
    map.steps[i] = static_cast<uint8_t>(steps[i]);
  }
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = static_cast<uint8_t>(bytes);
  map.swizzle_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                                                             : 0;
  map.is_rounded = type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  if (map.swizzle_bytes != 0 && map.box[0] * bytes > map.swizzle_bytes) return CUDA_ERROR_INVALID_VALUE;
  if (map.box[0] * bytes % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  memset(to, 0, sizeof(*to));
  memcpy(static_cast<void*>(to), &map, sizeof(map));
  return CUDA_SUCCESS;
}

// Calls each(shared, global, bytes) for every 16 bytes of the box. The first `bytes` of them are inside the tensor.
template <typename Each>
void walk(const Map& map, const std::array<int32_t, kMostRank>& at, uint32_t shared, Each each) {
  const int of_vector = 16 / map.element_bytes, vectors = map.box[0] / of_vector;
  int64_t count = vectors;
  for (int i = 1; i < map.rank; ++i) count *= map.box[i];
  for (int64_t number = 0; number < count; ++number) {
    int64_t rest = number / vectors;
    const int64_t column = at[0] + number % vectors * of_vector;
    char* vector = map.data + column * map.element_bytes;
    bool exists = column >= 0;
    for (int i = 1; i < map.rank; ++i) {
      const int64_t place = at[i] + rest % map.box[i] * map.steps[i];
      rest /= map.box[i];
      exists &= place >= 0 && place < static_cast<int64_t>(map.sizes[i]);
      vector += place * static_cast<int64_t>(map.strides[i]);
    }
    auto address = static_cast<uint32_t>(shared + 16 * number);
    if (map.swizzle_bytes != 0) address ^= (address >> 7 & (map.swizzle_bytes / 16 - 1)) << 4;
    // The last vector of a row may be partly outside the tensor.
    const auto left = static_cast<int64_t>(map.sizes[0]) - column;
    const int inside = exists && left > 0 ? static_cast<int>(std::min<int64_t>(left, of_vector)) : 0;
    each(static_cast<char*>(shared_bytes(address, 16)), vector, inside * map.element_bytes);
  }
}

struct Box {
  Map map;
  std::array<int32_t, kMostRank> at{};

  Box(const void* encoded, const int32_t* from, int rank) {
    memcpy(&map, encoded, sizeof(map));
    require(map.rank == rank, "a map has the rank of its copy");
    require(from[0] * map.element_bytes % 16 == 0, "a box begins on 16 bytes");
    for (int i = 0; i < rank; ++i) at[i] = from[i];
  }
};

}  // namespace

void copy_box(uint32_t shared, const void* encoded, const int32_t* from, int rank, uint32_t barrier) {
  const Box box(encoded, from, rank);
  require(shared % 128 == 0, "a box lies on 128 bytes");
  uint32_t bytes = box.map.element_bytes;
  for (int i = 0; i < rank; ++i) bytes *= box.map.box[i];
  copy_for_barrier(barrier, bytes, [box, shared] {
    walk(box.map, box.at, shared, [&](char* to, const char* from, int bytes) {
      memset(to, 0, 16);
      memcpy(to, from, bytes);
      if (!box.map.is_rounded) return;
      float values[4];
      memcpy(values, to, 16);
      for (float& value : values) value = convt::ptx::round_tf32(value);
      memcpy(to, values, 16);
    });
  });
}

void store_box(const void* encoded, const int32_t* from, int rank, uint32_t shared) {
  const Box box(encoded, from, rank);
  store_later([box, shared] {
    walk(box.map, box.at, shared, [](const char* from, char* to, int bytes) { memcpy(to, from, bytes); });
  });
}

}  // namespace emulator

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(&emulator::encode);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
}
