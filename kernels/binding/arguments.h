// Lists and sizes from Python -> ConvTProblem, checked. The messages are for callers of the raw ops:
// convt_ext.conv_transpose2d has let PyTorch complain long before.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/problem.h"
#include "problem/shapes.h"

namespace convt::binding {

struct ConvArguments {
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> output_padding;
  int64_t groups;
  std::vector<int64_t> dilation;
  int64_t precision;  // enum Precision
  bool channels_last;
};

// A forward problem without strides, of these sizes, 4 each. Throws std::runtime_error naming the argument.
ConvTProblem make_problem(const int64_t* x_sizes, const int64_t* w_sizes, bool has_bias, DataType dtype,
                          const ConvArguments& arguments);

// The size along axis 0 (H) or 1 (W) of the input, or of the kernel, from the two others'. Throws
// std::runtime_error where no size gives that output.
int64_t input_size_of(int index, int64_t out, int64_t kernel, const ConvArguments& arguments);
int64_t kernel_size_of(int index, int64_t out, int64_t in, const ConvArguments& arguments);

}  // namespace convt::binding
