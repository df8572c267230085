// Lists and sizes from Python -> ConvTProblem, checked. The messages are for callers of the raw ops:
// convt_ext.conv_transpose2d has let PyTorch complain long before.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/problem.h"

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

// [batch, c_out, h_out, w_out]
struct OutputShape {
  int64_t sizes[4];
  int64_t strides[4];
};

// `sizes` and `strides` are 4 long. Throws std::runtime_error naming the argument.
ConvTProblem make_problem(const int64_t* x_sizes, const int64_t* x_strides, const int64_t* w_sizes,
                          const int64_t* w_strides, bool has_bias, DataType dtype, const ConvArguments& arguments,
                          OutputShape* output);

}  // namespace convt::binding
