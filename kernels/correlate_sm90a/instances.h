// All kernels of the correlate family, one row each.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// Layout of the operands. kRows, kBoxes: NCHW, with rows of grad_output in shared memory contiguous, or split into
// boxes of 128 bytes of columns. kPixels: channels_last.
enum class CorrelateForm : int32_t { kRows, kBoxes, kPixels };

struct CorrelateInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t taps;  // adjacent taps along W per warpgroup
  int32_t columns;  // input channels
  int32_t consumers;  // consumer warpgroups
  int32_t stride_w;  // required W stride, with dilation 1 (NCHW in half precision); 0: any
  CorrelateForm form;
};

// Limit for kernels with operand A in registers: with more taps no registers are left for the gradient of the bias.
inline constexpr int32_t kCorrelateMostBiasTaps = 4;

inline constexpr CorrelateInstance kCorrelateInstances[] = {
    {"correlate_tf32_2x128", DataType::kFloat32, Precision::kTf32, 2, 128, 2, 0, CorrelateForm::kRows},
    {"correlate_tf32_2x128_boxes", DataType::kFloat32, Precision::kTf32, 2, 128, 2, 0, CorrelateForm::kBoxes},
    {"correlate_tf32_2x64", DataType::kFloat32, Precision::kTf32, 2, 64, 2, 0, CorrelateForm::kRows},
    {"correlate_tf32_3x96", DataType::kFloat32, Precision::kTf32, 3, 96, 2, 0, CorrelateForm::kRows},
    {"correlate_tf32_4x64", DataType::kFloat32, Precision::kTf32, 4, 64, 2, 0, CorrelateForm::kRows},
    {"correlate_tf32_5x64", DataType::kFloat32, Precision::kTf32, 5, 64, 2, 0, CorrelateForm::kRows},
    {"correlate_tf32_3x64x3", DataType::kFloat32, Precision::kTf32, 3, 64, 3, 0, CorrelateForm::kRows},
    {"correlate_bf16_3x96", DataType::kBFloat16, Precision::kHalf, 3, 96, 2, 1, CorrelateForm::kRows},
    {"correlate_bf16_5x64", DataType::kBFloat16, Precision::kHalf, 5, 64, 2, 1, CorrelateForm::kRows},
    {"correlate_bf16_3x64x3", DataType::kBFloat16, Precision::kHalf, 3, 64, 3, 1, CorrelateForm::kRows},
    {"correlate_bf16_stride2_2x128", DataType::kBFloat16, Precision::kHalf, 2, 128, 2, 2, CorrelateForm::kRows},
    {"correlate_bf16_stride2_2x128_boxes", DataType::kBFloat16, Precision::kHalf, 2, 128, 2, 2, CorrelateForm::kBoxes},
    {"correlate_bf16_stride2_2x64", DataType::kBFloat16, Precision::kHalf, 2, 64, 2, 2, CorrelateForm::kRows},
    {"correlate_bf16_stride2_4x64", DataType::kBFloat16, Precision::kHalf, 4, 64, 2, 2, CorrelateForm::kRows},
    {"correlate_bf16_stride2_3x64x3", DataType::kBFloat16, Precision::kHalf, 3, 64, 3, 2, CorrelateForm::kRows},
    {"correlate_f16_3x96", DataType::kFloat16, Precision::kHalf, 3, 96, 2, 1, CorrelateForm::kRows},
    {"correlate_f16_5x64", DataType::kFloat16, Precision::kHalf, 5, 64, 2, 1, CorrelateForm::kRows},
    {"correlate_f16_3x64x3", DataType::kFloat16, Precision::kHalf, 3, 64, 3, 1, CorrelateForm::kRows},
    {"correlate_f16_stride2_2x128", DataType::kFloat16, Precision::kHalf, 2, 128, 2, 2, CorrelateForm::kRows},
    {"correlate_f16_stride2_2x128_boxes", DataType::kFloat16, Precision::kHalf, 2, 128, 2, 2, CorrelateForm::kBoxes},
    {"correlate_f16_stride2_2x64", DataType::kFloat16, Precision::kHalf, 2, 64, 2, 2, CorrelateForm::kRows},
    {"correlate_f16_stride2_4x64", DataType::kFloat16, Precision::kHalf, 4, 64, 2, 2, CorrelateForm::kRows},
    {"correlate_f16_stride2_3x64x3", DataType::kFloat16, Precision::kHalf, 3, 64, 3, 2, CorrelateForm::kRows},
    {"correlate_tf32_pixels_2x128", DataType::kFloat32, Precision::kTf32, 2, 128, 2, 0, CorrelateForm::kPixels},
    {"correlate_tf32_pixels_2x64", DataType::kFloat32, Precision::kTf32, 2, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_tf32_pixels_3x96", DataType::kFloat32, Precision::kTf32, 3, 96, 2, 0, CorrelateForm::kPixels},
    {"correlate_tf32_pixels_4x64", DataType::kFloat32, Precision::kTf32, 4, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_tf32_pixels_5x64", DataType::kFloat32, Precision::kTf32, 5, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_tf32_pixels_3x64x3", DataType::kFloat32, Precision::kTf32, 3, 64, 3, 0, CorrelateForm::kPixels},
    {"correlate_bf16_pixels_2x128", DataType::kBFloat16, Precision::kHalf, 2, 128, 2, 0, CorrelateForm::kPixels},
    {"correlate_bf16_pixels_2x64", DataType::kBFloat16, Precision::kHalf, 2, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_bf16_pixels_3x128", DataType::kBFloat16, Precision::kHalf, 3, 128, 2, 0, CorrelateForm::kPixels},
    {"correlate_bf16_pixels_4x64", DataType::kBFloat16, Precision::kHalf, 4, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_bf16_pixels_5x64", DataType::kBFloat16, Precision::kHalf, 5, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_bf16_pixels_3x64x3", DataType::kBFloat16, Precision::kHalf, 3, 64, 3, 0, CorrelateForm::kPixels},
    {"correlate_f16_pixels_2x128", DataType::kFloat16, Precision::kHalf, 2, 128, 2, 0, CorrelateForm::kPixels},
    {"correlate_f16_pixels_2x64", DataType::kFloat16, Precision::kHalf, 2, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_f16_pixels_3x128", DataType::kFloat16, Precision::kHalf, 3, 128, 2, 0, CorrelateForm::kPixels},
    {"correlate_f16_pixels_4x64", DataType::kFloat16, Precision::kHalf, 4, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_f16_pixels_5x64", DataType::kFloat16, Precision::kHalf, 5, 64, 2, 0, CorrelateForm::kPixels},
    {"correlate_f16_pixels_3x64x3", DataType::kFloat16, Precision::kHalf, 3, 64, 3, 0, CorrelateForm::kPixels},
};
inline constexpr int32_t kNumCorrelateInstances = count_of(kCorrelateInstances);

}  // namespace convt

namespace convt::correlate_sm90a {

// The kernel of a row of kCorrelateInstances, of form kPixels or of another form.
const void* pixels_kernel_of(int32_t instance);
const void* rows_kernel_of(int32_t instance);

}  // namespace convt::correlate_sm90a
