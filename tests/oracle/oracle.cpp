// `_oracle`: conv_transpose3d and the gradient of its input, with every sum in the documented order of
// kernels/ORDER.md. Scalar loops implement the definition oh = ih * stride - padding + kh * dilation directly, without
// phases, tiles or plans. The results are the bit-exact reference for the kernels; two-dimensional problems have depth
// 1. Called by: tests, through oracle/plugin.py. Uses nothing of kernels/.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace py = pybind11;

namespace {

using Triple = std::array<int64_t, 3>;  // depth, height, width

struct Sizes {
  int64_t batch, c_in, c_out, groups;
  Triple in, out, kernel, stride, padding, dilation;
};

// Input columns whose term of tap kw is inside the output row.
struct Columns {
  int64_t begin, end;
  int64_t first;  // output column of input column 0
};

Columns columns_of(const Sizes& sizes, int64_t kw) {
  const int64_t stride = sizes.stride[2];
  const int64_t first = kw * sizes.dilation[2] - sizes.padding[2];
  const int64_t room = sizes.out[2] - 1 - first;
  return {first >= 0 ? 0 : (-first + stride - 1) / stride, room < 0 ? 0 : std::min(sizes.in[2], room / stride + 1),
          first};
}

// row[ow] = fma(x_row[iw], weight, row[ow]) for every output column that tap kw reaches.
template <typename T>
void add_terms(const Sizes& sizes, const Columns& columns, const T* x_row, int64_t x_step, T weight, T* row) {
  for (int64_t iw = columns.begin; iw < columns.end; ++iw) {
    T& sum = row[columns.first + iw * sizes.stride[2]];
    sum = std::fma(x_row[iw * x_step], weight, sum);
  }
}

// Input plane (axis 0) or row (axis 1) that a tap reads for that plane or row of the output, or -1.
int64_t input_of(const Sizes& sizes, int axis, int64_t out, int64_t tap) {
  const int64_t distance = out + sizes.padding[axis] - tap * sizes.dilation[axis];
  if (distance < 0 || distance % sizes.stride[axis] != 0) return -1;
  const int64_t in = distance / sizes.stride[axis];
  return in < sizes.in[axis] ? in : -1;
}

template <typename T>
struct Operands {
  const T* x;  // [batch, c_in, d_in, h_in, w_in]
  const T* w;  // [c_in, c_out / groups, k_d, k_h, k_w]
  std::array<int64_t, 5> x_stride, w_stride;  // elements

  const T* x_row(int64_t n, int64_t ci, int64_t id, int64_t ih) const {
    return x + n * x_stride[0] + ci * x_stride[1] + id * x_stride[2] + ih * x_stride[3];
  }
  T weight(int64_t ci, int64_t co, int64_t kd, int64_t kh, int64_t kw) const {
    return w[ci * w_stride[0] + co * w_stride[1] + kd * w_stride[2] + kh * w_stride[3] + kw * w_stride[4]];
  }
};

// One chain over c_in, kd, kh, kw, each ascending.
template <typename T>
void row_ieee(const Sizes& sizes, const Operands<T>& operands, int64_t n, int64_t co, int64_t od, int64_t oh, T* row) {
  const int64_t c_in = sizes.c_in / sizes.groups, c_out = sizes.c_out / sizes.groups;
  for (int64_t ci = co / c_out * c_in, end = ci + c_in; ci < end; ++ci) {
    for (int64_t kd = 0; kd < sizes.kernel[0]; ++kd) {
      for (int64_t kh = 0; kh < sizes.kernel[1]; ++kh) {
        const int64_t id = input_of(sizes, 0, od, kd), ih = input_of(sizes, 1, oh, kh);
        if (id < 0 || ih < 0) continue;
        for (int64_t kw = 0; kw < sizes.kernel[2]; ++kw) {
          add_terms(sizes, columns_of(sizes, kw), operands.x_row(n, ci, id, ih), operands.x_stride[4],
                    operands.weight(ci, co % c_out, kd, kh, kw), row);
        }
      }
    }
  }
}

// One chain over c_in per tap, starting from zero. The tap results are added by ascending input plane, row, column.
// Taps outside the input have no result.
template <typename T>
void row_aten(const Sizes& sizes, const Operands<T>& operands, int64_t n, int64_t co, int64_t od, int64_t oh, T* row) {
  const int64_t c_in = sizes.c_in / sizes.groups, c_out = sizes.c_out / sizes.groups;
  const int64_t first_ci = co / c_out * c_in;
  std::vector<T> tap(static_cast<size_t>(sizes.out[2]));
  for (int64_t kd = sizes.kernel[0] - 1; kd >= 0; --kd) {
    for (int64_t kh = sizes.kernel[1] - 1; kh >= 0; --kh) {
      const int64_t id = input_of(sizes, 0, od, kd), ih = input_of(sizes, 1, oh, kh);
      if (id < 0 || ih < 0) continue;
      for (int64_t kw = sizes.kernel[2] - 1; kw >= 0; --kw) {
        const Columns columns = columns_of(sizes, kw);
        std::fill(tap.begin(), tap.end(), T(0));
        for (int64_t ci = first_ci; ci < first_ci + c_in; ++ci) {
          add_terms(sizes, columns, operands.x_row(n, ci, id, ih), operands.x_stride[4],
                    operands.weight(ci, co % c_out, kd, kh, kw), tap.data());
        }
        for (int64_t iw = columns.begin; iw < columns.end; ++iw) {
          const int64_t ow = columns.first + iw * sizes.stride[2];
          row[ow] += tap[static_cast<size_t>(ow)];
        }
      }
    }
  }
}

template <typename T>
std::array<int64_t, 5> element_strides(const py::array_t<T>& array, const char* name) {
  if (array.ndim() != 5) throw std::invalid_argument(std::string(name) + ": expected 5 dimensions");
  std::array<int64_t, 5> strides{};
  for (int i = 0; i < 5; ++i) {
    if (array.strides(i) % static_cast<int64_t>(sizeof(T)) != 0) {
      throw std::invalid_argument(std::string(name) + ": strides must be whole elements");
    }
    strides[i] = array.strides(i) / static_cast<int64_t>(sizeof(T));
  }
  return strides;
}

template <typename T>
py::array_t<T> forward(const py::array_t<T>& x, const py::array_t<T>& w, const std::optional<py::array_t<T>>& bias,
                       Triple stride, Triple padding, Triple output_padding, int64_t groups, Triple dilation,
                       const std::string& order) {
  if (order != "ieee" && order != "aten") {
    throw std::invalid_argument("order: got '" + order + "', expected 'ieee' or 'aten'");
  }
  const Operands<T> operands{x.data(), w.data(), element_strides(x, "input"), element_strides(w, "weight")};
  Sizes sizes{x.shape(0),
              x.shape(1),
              w.shape(1) * groups,
              groups,
              {x.shape(2), x.shape(3), x.shape(4)},
              {},
              {w.shape(2), w.shape(3), w.shape(4)},
              stride,
              padding,
              dilation};
  if (w.shape(0) != sizes.c_in || sizes.c_in % groups != 0) {
    throw std::invalid_argument("weight: its channels do not match the input's and groups");
  }
  for (int i = 0; i < 3; ++i) {
    sizes.out[i] =
        (sizes.in[i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (sizes.kernel[i] - 1) + output_padding[i] + 1;
    if (sizes.out[i] < 0) throw std::invalid_argument("output size is negative");
  }
  const T* bias_data = nullptr;
  int64_t bias_step = 0;
  if (bias) {
    if (bias->ndim() != 1 || bias->shape(0) != sizes.c_out) throw std::invalid_argument("bias: wrong shape");
    bias_data = bias->data();
    bias_step = bias->strides(0) / static_cast<int64_t>(sizeof(T));
  }

  py::array_t<T> result({sizes.batch, sizes.c_out, sizes.out[0], sizes.out[1], sizes.out[2]});
  T* row = result.mutable_data();
  const auto add_row = order == "ieee" ? &row_ieee<T> : &row_aten<T>;
  py::gil_scoped_release no_python;
  for (int64_t n = 0; n < sizes.batch; ++n) {
    for (int64_t co = 0; co < sizes.c_out; ++co) {
      for (int64_t i = 0; i < sizes.out[0] * sizes.out[1]; ++i, row += sizes.out[2]) {
        std::fill(row, row + sizes.out[2], T(0));
        add_row(sizes, operands, n, co, i / sizes.out[1], i % sizes.out[1], row);
        if (bias_data == nullptr) continue;
        for (int64_t ow = 0; ow < sizes.out[2]; ++ow) row[ow] += bias_data[co * bias_step];
      }
    }
  }
  return result;
}

// Gradient of the input: one chain per element over c_out of its group, kd, kh, kw, each ascending. Taps outside the
// output are skipped. `in`: (d_in, h_in, w_in).
template <typename T>
py::array_t<T> grad_input(const py::array_t<T>& grad_output, const py::array_t<T>& w, Triple in, Triple stride,
                          Triple padding, int64_t groups, Triple dilation) {
  const Operands<T> operands{grad_output.data(), w.data(), element_strides(grad_output, "grad_output"),
                             element_strides(w, "weight")};
  const int64_t batch = grad_output.shape(0), c_in = w.shape(0), group_c_out = w.shape(1);
  const Triple out{grad_output.shape(2), grad_output.shape(3), grad_output.shape(4)};
  const Triple kernel{w.shape(2), w.shape(3), w.shape(4)};
  if (grad_output.shape(1) != group_c_out * groups || c_in % groups != 0) {
    throw std::invalid_argument("weight: its channels do not match grad_output's and groups");
  }
  py::array_t<T> result({batch, c_in, in[0], in[1], in[2]});
  T* next = result.mutable_data();
  py::gil_scoped_release no_python;
  for (int64_t i = 0, size = result.size(); i < size; ++i) {
    const int64_t n = i / (in[2] * in[1] * in[0] * c_in), ci = i / (in[2] * in[1] * in[0]) % c_in;
    const int64_t id = i / (in[2] * in[1]) % in[0], ih = i / in[2] % in[1], iw = i % in[2];
    const int64_t first_co = ci / (c_in / groups) * group_c_out;
    T sum = 0;
    for (int64_t co = 0; co < group_c_out; ++co) {
      for (int64_t kd = 0; kd < kernel[0]; ++kd) {
        const int64_t od = id * stride[0] - padding[0] + kd * dilation[0];
        if (od < 0 || od >= out[0]) continue;
        for (int64_t kh = 0; kh < kernel[1]; ++kh) {
          const int64_t oh = ih * stride[1] - padding[1] + kh * dilation[1];
          if (oh < 0 || oh >= out[1]) continue;
          const T* row = operands.x_row(n, first_co + co, od, oh);
          for (int64_t kw = 0; kw < kernel[2]; ++kw) {
            const int64_t ow = iw * stride[2] - padding[2] + kw * dilation[2];
            if (ow < 0 || ow >= out[2]) continue;
            sum = std::fma(row[ow * operands.x_stride[4]], operands.weight(ci, co, kd, kh, kw), sum);
          }
        }
      }
    }
    *next++ = sum;
  }
  return result;
}

template <typename T>
void define(py::module_& module) {
  const Triple zeros{0, 0, 0}, ones{1, 1, 1};
  module.def("grad_input", &grad_input<T>, py::arg("grad_output").noconvert(), py::arg("weight").noconvert(),
             py::arg("input_size"), py::arg("stride") = ones, py::arg("padding") = zeros, py::arg("groups") = 1,
             py::arg("dilation") = ones,
             "The gradient of the input from that of the output, numpy arrays of one dtype with any strides.");
  module.def("forward", &forward<T>, py::arg("input").noconvert(), py::arg("weight").noconvert(),
             py::arg("bias").noconvert() = py::none(), py::arg("stride") = ones, py::arg("padding") = zeros,
             py::arg("output_padding") = zeros, py::arg("groups") = 1, py::arg("dilation") = ones,
             py::arg("order") = "ieee",
             "Same arguments as conv_transpose3d (triples, not ints), numpy arrays of one dtype with any strides.");
}

}  // namespace

PYBIND11_MODULE(_oracle, module) {
  module.doc() = "conv_transpose3d with every sum in the documented order, float32 and float64.";
  define<float>(module);
  define<double>(module);
}
