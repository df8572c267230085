// Conversions between the planner's values and dicts, shared by the sources of `_plan`.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>

#include "plan/device.h"
#include "plan/plan.h"
#include "problem/phases.h"
#include "problem/problem.h"
#include "simt/layout.h"

namespace py = pybind11;

// Each function adds bindings to the module.
void add_cache(py::module_& module);
void add_plans(py::module_& module);
void add_tiles(py::module_& module);

template <typename T>
T field(const py::dict& values, const char* key) {
  if (!values.contains(key)) throw py::key_error(key);
  return values[key].cast<T>();
}

inline convt::Axis axis_of(const py::dict& values) {
  return convt::Axis{field<int32_t>(values, "in"),
                     field<int32_t>(values, "out"),
                     field<int32_t>(values, "kernel"),
                     field<int32_t>(values, "stride"),
                     field<int32_t>(values, "padding"),
                     field<int32_t>(values, "dilation"),
                     values.contains("position_step") ? field<int32_t>(values, "position_step") : 1};
}

inline void fill_strides(const py::dict& values, const char* key, int64_t (&strides)[4]) {
  const auto list = field<std::array<int64_t, 4>>(values, key);
  for (size_t i = 0; i < list.size(); ++i) strides[i] = list[i];
}

inline convt::ConvTProblem problem_of(const py::dict& values) {
  convt::ConvTProblem problem{};
  problem.direction = static_cast<convt::Direction>(field<int32_t>(values, "direction"));
  problem.batch = field<int64_t>(values, "batch");
  problem.c_in = field<int64_t>(values, "c_in");
  problem.c_out = field<int64_t>(values, "c_out");
  problem.groups = field<int64_t>(values, "groups");
  problem.h = axis_of(field<py::dict>(values, "h"));
  problem.w = axis_of(field<py::dict>(values, "w"));
  problem.dtype = static_cast<convt::DataType>(field<int32_t>(values, "dtype"));
  problem.precision = static_cast<convt::Precision>(field<int32_t>(values, "precision"));
  problem.has_bias = field<bool>(values, "has_bias");
  fill_strides(values, "x_stride", problem.x_stride);
  fill_strides(values, "w_stride", problem.w_stride);
  fill_strides(values, "y_stride", problem.y_stride);
  if (values.contains("d")) {
    problem.d = axis_of(field<py::dict>(values, "d"));
    problem.x_plane = field<int64_t>(values, "x_plane");
    problem.w_plane = field<int64_t>(values, "w_plane");
    problem.y_plane = field<int64_t>(values, "y_plane");
  }
  return problem;
}

// Converts the six numbers of the op `convt_ext::plan`, in its units.
inline convt::DeviceInfo device_of(const std::array<int64_t, 6>& numbers) {
  auto narrow = [&numbers](size_t index) { return static_cast<int32_t>(numbers[index]); };
  return convt::DeviceInfo{narrow(0), narrow(1),         narrow(2),
                           narrow(3), numbers[4] * 1e-3, static_cast<double>(numbers[5])};
}

inline py::dict dict_of(const convt::Window& window) {
  return py::dict(py::arg("step") = window.step, py::arg("position_step") = window.position_step,
                  py::arg("extent") = window.extent, py::arg("unit") = window.unit, py::arg("copies") = window.copies);
}

inline py::dict dict_of(const convt::Phase& phase) {
  return py::dict(py::arg("num_taps") = phase.num_taps, py::arg("first_tap") = phase.first_tap,
                  py::arg("tap_step") = phase.tap_step, py::arg("first_shift") = phase.first_shift,
                  py::arg("shift_step") = phase.shift_step);
}

inline py::dict dict_of(const convt::Axis& axis) {
  py::dict result(py::arg("in") = axis.in, py::arg("out") = axis.out, py::arg("kernel") = axis.kernel,
                  py::arg("stride") = axis.stride, py::arg("padding") = axis.padding,
                  py::arg("dilation") = axis.dilation);
  if (axis.position_step != 1) result["position_step"] = axis.position_step;
  return result;
}

inline std::array<int64_t, 4> list_of(const int64_t (&strides)[4]) {
  return {strides[0], strides[1], strides[2], strides[3]};
}

inline py::dict dict_of(const convt::ConvTProblem& problem) {
  return py::dict(py::arg("direction") = static_cast<int>(problem.direction), py::arg("batch") = problem.batch,
                  py::arg("c_in") = problem.c_in, py::arg("c_out") = problem.c_out, py::arg("groups") = problem.groups,
                  py::arg("h") = dict_of(problem.h), py::arg("w") = dict_of(problem.w),
                  py::arg("dtype") = static_cast<int>(problem.dtype),
                  py::arg("precision") = static_cast<int>(problem.precision), py::arg("has_bias") = problem.has_bias,
                  py::arg("x_stride") = list_of(problem.x_stride), py::arg("w_stride") = list_of(problem.w_stride),
                  py::arg("y_stride") = list_of(problem.y_stride));
}
