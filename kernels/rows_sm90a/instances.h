// Kernels of the rows engine, one row each.
#pragma once

#include "plan/kernel_table.h"
#include "rows_sm90a/layout.h"

namespace convt {

struct StridedInstance : StridedShape {
  const char* name;
};

inline constexpr StridedInstance kStridedInstances[] = {
    {{{DataType::kFloat32, Precision::kTf32, 64}, StridedForm::kOutput, 4, false}, "strided_tf32_output_64"},
    {{{DataType::kFloat32, Precision::kTf32, 128}, StridedForm::kGather, 4, false}, "strided_tf32_gather_128"},
    {{{DataType::kFloat32, Precision::kTf32, 64}, StridedForm::kGather, 4, false}, "strided_tf32_gather_64"},
    {{{DataType::kFloat32, Precision::kTf32, 32}, StridedForm::kOutput, 3, false}, "strided_tf32_output_k3_32"},
    {{{DataType::kFloat32, Precision::kTf32, 64}, StridedForm::kOutput, 4, true}, "strided_tf32_split_64"},
    {{{DataType::kFloat32, Precision::kTf32, 32}, StridedForm::kOutput, 3, true}, "strided_tf32_split_k3_32"},
    {{{DataType::kFloat32, Precision::kTf32, 128}, StridedForm::kGather, 3, false}, "strided_tf32_gather_k3_128"},
    {{{DataType::kFloat32, Precision::kTf32, 64}, StridedForm::kGather, 3, false}, "strided_tf32_gather_k3_64"},
    {{{DataType::kFloat32, Precision::kTf32x3, 32}, StridedForm::kOutput, 4, false}, "strided_tf32x3_output_32"},
    {{{DataType::kFloat32, Precision::kTf32x3, 64}, StridedForm::kGather, 4, false}, "strided_tf32x3_gather_64"},
    {{{DataType::kFloat32, Precision::kTf32x3, 32}, StridedForm::kOutput, 3, false}, "strided_tf32x3_output_k3_32"},
    {{{DataType::kFloat32, Precision::kTf32x3, 64}, StridedForm::kGather, 3, false}, "strided_tf32x3_gather_k3_64"},
    {{{DataType::kBFloat16, Precision::kHalf, 64}, StridedForm::kOutput, 4, false}, "strided_bf16_output_64"},
    {{{DataType::kBFloat16, Precision::kHalf, 128}, StridedForm::kGather, 4, false}, "strided_bf16_gather_128"},
    {{{DataType::kBFloat16, Precision::kHalf, 64}, StridedForm::kGather, 4, false}, "strided_bf16_gather_64"},
    {{{DataType::kBFloat16, Precision::kHalf, 32}, StridedForm::kOutput, 3, false}, "strided_bf16_output_k3_32"},
    {{{DataType::kBFloat16, Precision::kHalf, 64}, StridedForm::kOutput, 4, true}, "strided_bf16_split_64"},
    {{{DataType::kBFloat16, Precision::kHalf, 32}, StridedForm::kOutput, 3, true}, "strided_bf16_split_k3_32"},
    {{{DataType::kBFloat16, Precision::kHalf, 128}, StridedForm::kGather, 3, false}, "strided_bf16_gather_k3_128"},
    {{{DataType::kBFloat16, Precision::kHalf, 64}, StridedForm::kGather, 3, false}, "strided_bf16_gather_k3_64"},
    {{{DataType::kFloat16, Precision::kHalf, 64}, StridedForm::kOutput, 4, false}, "strided_f16_output_64"},
    {{{DataType::kFloat16, Precision::kHalf, 128}, StridedForm::kGather, 4, false}, "strided_f16_gather_128"},
    {{{DataType::kFloat16, Precision::kHalf, 64}, StridedForm::kGather, 4, false}, "strided_f16_gather_64"},
    {{{DataType::kFloat16, Precision::kHalf, 32}, StridedForm::kOutput, 3, false}, "strided_f16_output_k3_32"},
    {{{DataType::kFloat16, Precision::kHalf, 64}, StridedForm::kOutput, 4, true}, "strided_f16_split_64"},
    {{{DataType::kFloat16, Precision::kHalf, 32}, StridedForm::kOutput, 3, true}, "strided_f16_split_k3_32"},
    {{{DataType::kFloat16, Precision::kHalf, 128}, StridedForm::kGather, 3, false}, "strided_f16_gather_k3_128"},
    {{{DataType::kFloat16, Precision::kHalf, 64}, StridedForm::kGather, 3, false}, "strided_f16_gather_k3_64"},
};

struct WindowInstance : WindowShape {
  const char* name;
};

inline constexpr WindowInstance kWindowInstances[] = {
    {{{DataType::kFloat32, Precision::kTf32, 64}, 3}, "window_tf32_64x3"},
    {{{DataType::kFloat32, Precision::kTf32, 64}, 5}, "window_tf32_64x5"},
    {{{DataType::kFloat32, Precision::kTf32, 64}, 7}, "window_tf32_64x7"},
    {{{DataType::kFloat32, Precision::kTf32, 32}, 3}, "window_tf32_32x3"},
    {{{DataType::kFloat32, Precision::kTf32, 32}, 5}, "window_tf32_32x5"},
    {{{DataType::kFloat32, Precision::kTf32, 32}, 7}, "window_tf32_32x7"},
    {{{DataType::kFloat32, Precision::kTf32x3, 64}, 3}, "window_tf32x3_64x3"},
    {{{DataType::kFloat32, Precision::kTf32x3, 64}, 5}, "window_tf32x3_64x5"},
    {{{DataType::kFloat32, Precision::kTf32x3, 64}, 7}, "window_tf32x3_64x7"},
    {{{DataType::kFloat32, Precision::kTf32x3, 32}, 3}, "window_tf32x3_32x3"},
    {{{DataType::kFloat32, Precision::kTf32x3, 32}, 5}, "window_tf32x3_32x5"},
    {{{DataType::kFloat32, Precision::kTf32x3, 32}, 7}, "window_tf32x3_32x7"},
    {{{DataType::kBFloat16, Precision::kHalf, 64}, 3}, "window_bf16_64x3"},
    {{{DataType::kBFloat16, Precision::kHalf, 64}, 5}, "window_bf16_64x5"},
    {{{DataType::kBFloat16, Precision::kHalf, 64}, 7}, "window_bf16_64x7"},
    {{{DataType::kBFloat16, Precision::kHalf, 32}, 3}, "window_bf16_32x3"},
    {{{DataType::kBFloat16, Precision::kHalf, 32}, 5}, "window_bf16_32x5"},
    {{{DataType::kBFloat16, Precision::kHalf, 32}, 7}, "window_bf16_32x7"},
    {{{DataType::kFloat16, Precision::kHalf, 64}, 3}, "window_f16_64x3"},
    {{{DataType::kFloat16, Precision::kHalf, 64}, 5}, "window_f16_64x5"},
    {{{DataType::kFloat16, Precision::kHalf, 64}, 7}, "window_f16_64x7"},
    {{{DataType::kFloat16, Precision::kHalf, 32}, 3}, "window_f16_32x3"},
    {{{DataType::kFloat16, Precision::kHalf, 32}, 5}, "window_f16_32x5"},
    {{{DataType::kFloat16, Precision::kHalf, 32}, 7}, "window_f16_32x7"},
};

// Return the kernel of row `instance`.
namespace rows_sm90a::strided {
const void* kernel_of(int32_t instance);
}
namespace rows_sm90a::window {
const void* kernel_of(int32_t instance);
}

}  // namespace convt
