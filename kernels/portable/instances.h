// Kernel instances of the portable engine, for dispatch, planning, tests and the files of instances/.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel for the forward pass and the gradient of the input. A CTA's tile of the result is positions x channels,
// shared by warps_m x warps_n warps.
struct PortableInstance {
  const char* name;
  DataType dtype;
  int32_t block_m;
  int32_t block_n;
  int32_t warps_m;
  int32_t warps_n;
};

inline constexpr PortableInstance kPortableInstances[] = {
    {"portable_f16_128x128", DataType::kFloat16, 128, 128, 2, 2},
    {"portable_f16_256x64", DataType::kFloat16, 256, 64, 4, 1},
    {"portable_f16_128x64", DataType::kFloat16, 128, 64, 2, 2},
    {"portable_f16_128x32", DataType::kFloat16, 128, 32, 4, 1},
    {"portable_f16_64x64", DataType::kFloat16, 64, 64, 2, 2},
    {"portable_bf16_128x128", DataType::kBFloat16, 128, 128, 2, 2},
    {"portable_bf16_256x64", DataType::kBFloat16, 256, 64, 4, 1},
    {"portable_bf16_128x64", DataType::kBFloat16, 128, 64, 2, 2},
    {"portable_bf16_128x32", DataType::kBFloat16, 128, 32, 4, 1},
    {"portable_bf16_64x64", DataType::kBFloat16, 64, 64, 2, 2},
    {"portable_tf32_128x128", DataType::kFloat32, 128, 128, 2, 2},
    {"portable_tf32_256x64", DataType::kFloat32, 256, 64, 4, 1},
    {"portable_tf32_128x64", DataType::kFloat32, 128, 64, 2, 2},
    {"portable_tf32_128x32", DataType::kFloat32, 128, 32, 4, 1},
    {"portable_tf32_64x64", DataType::kFloat32, 64, 64, 2, 2},
};
inline constexpr int32_t kNumPortableInstances = count_of(kPortableInstances);

// A kernel for the gradient of the weight. A CTA's tile is block x block pairs of an input and an output channel of one
// tap, shared by 2 x 2 warps.
struct PortableGradWeightInstance {
  const char* name;
  DataType dtype;
  int32_t block;
};

inline constexpr PortableGradWeightInstance kPortableGradWeightInstances[] = {
    // float16
    {"portable_f16_weight_128", DataType::kFloat16, 128},
    {"portable_f16_weight_64", DataType::kFloat16, 64},
    // bfloat16
    {"portable_bf16_weight_128", DataType::kBFloat16, 128},
    {"portable_bf16_weight_64", DataType::kBFloat16, 64},
    // float32
    {"portable_tf32_weight_128", DataType::kFloat32, 128},
    {"portable_tf32_weight_64", DataType::kFloat32, 64},
};
inline constexpr int32_t kNumPortableGradWeightInstances = count_of(kPortableGradWeightInstances);

}  // namespace convt

namespace convt::portable {

// The kernel of a row of kPortableInstances, or of kPortableGradWeightInstances.
const void* kernel_of(int32_t instance);
const void* grad_weight_kernel_of(int32_t instance);

// The kernel that packs weights of a dtype for them.
const void* pack_weights(DataType dtype);

}  // namespace convt::portable
