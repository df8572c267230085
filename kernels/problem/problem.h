// Description of one transposed convolution, before a kernel is chosen.
// Called by: binding/ (fills it from tensors), plan/ (reads it), tests through the `_plan` module.
// Must not know: torch, CUDA, or any kernel.
#pragma once

#include <cstdint>

namespace convt {

enum class DataType : int32_t { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBFloat16 = 3 };

// The numerics contract of one call (docs/numerics.md). The values are part of the op schema.
enum class Precision : int32_t { kIeee = 0, kAten = 1, kTf32x3 = 2, kTf32 = 3, kHalf = 4 };

// The tensor of y = conv_transpose2d(x, w) that is computed: y, or the gradient of x or w from the gradient of y. The
// values are part of the op schema.
enum class Direction : int32_t { kForward = 0, kGradInput = 1, kGradWeight = 2 };

// One spatial axis: out = (in - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.
// Coordinates fit 32 bits; tensor offsets need 64 bits. fits_axis() checks the limits.
struct Axis {
  int32_t in;
  int32_t out;
  int32_t kernel;
  int32_t stride;
  int32_t padding;
  int32_t dilation;
  int32_t position_step = 1;  // input coordinates per position; not 1 only in problem/adjoint.h
};

inline bool fits_axis(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  constexpr int64_t kLimit = int64_t{1} << 29;  // sums of a few such values stay below 2^31
  return in < kLimit && out < kLimit && kernel < kLimit && stride < kLimit && padding < kLimit && dilation < kLimit &&
         (kernel - 1) * dilation < kLimit;
}

// Sizes are always those of the forward pass. x_stride, w_stride and y_stride belong to the tensors of these shapes in
// every direction. The result is dense, in NCHW or channels_last. Only three-dimensional layers have a depth axis d and
// strides along it; a *plane* is a tensor at one coordinate of that axis.
struct ConvTProblem {
  Direction direction;
  int64_t batch;
  int64_t c_in;  // all groups
  int64_t c_out;  // all groups
  int64_t groups;
  Axis h;
  Axis w;
  DataType dtype;
  Precision precision;
  bool has_bias;
  int64_t x_stride[4];  // elements; [batch, c_in, h_in, w_in]
  int64_t w_stride[4];  // elements; [c_in, c_out / groups, k_h, k_w]
  int64_t y_stride[4];  // elements; [batch, c_out, h_out, w_out]
  Axis d = {1, 1, 1, 1, 0, 1};
  int64_t x_plane = 0, w_plane = 0, y_plane = 0;  // elements between planes
};

// Whether the problem needs a depth axis. Families support this only if their row in families/families.h says so.
inline bool is_volume(const ConvTProblem& problem) {
  const Axis& d = problem.d;
  return d.in != 1 || d.out != 1 || d.kernel != 1 || d.padding != 0;
}

// A tensor with one channel, or one column, is in both formats; the stride of that axis is irrelevant.
inline bool is_channels_last(const int64_t* stride) { return stride[1] == 1 && stride[3] != 1; }
// Strides of the summed tensor and of the result, in the forward pass and the gradient of the input.
inline const int64_t* source_stride(const ConvTProblem& problem) {
  return problem.direction == Direction::kForward ? problem.x_stride : problem.y_stride;
}
inline const int64_t* result_stride(const ConvTProblem& problem) {
  return problem.direction == Direction::kForward ? problem.y_stride : problem.x_stride;
}

inline int64_t element_bytes(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat64: return 8;
    case DataType::kFloat32: return 4;
    case DataType::kFloat16:
    case DataType::kBFloat16: return 2;
  }
  return 0;
}

inline const char* name_of(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat64: return "float64";
    case DataType::kFloat32: return "float32";
    case DataType::kFloat16: return "float16";
    case DataType::kBFloat16: return "bfloat16";
  }
  return "unknown";
}

inline const char* name_of(Direction direction) {
  switch (direction) {
    case Direction::kForward: return "forward";
    case Direction::kGradInput: return "grad_input";
    case Direction::kGradWeight: return "grad_weight";
  }
  return "unknown";
}

inline const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kIeee: return "ieee";
    case Precision::kAten: return "aten";
    case Precision::kTf32x3: return "tf32x3";
    case Precision::kTf32: return "tf32";
    case Precision::kHalf: return "half";
  }
  return "unknown";
}

}  // namespace convt
