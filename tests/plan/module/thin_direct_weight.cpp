// Layout of the direct engine: gradient of the weight.
#include "gather/layout.h"
#include "module/values.h"

// Returns the kernel parameters, or None for an unsupported problem.
static py::object thin_direct_weight_layout(const py::dict& problem) {
  convt::ThinDirectWeightLayout layout;
  if (!convt::make_thin_direct_weight_layout(problem_of(problem), &layout)) return py::none();
  py::dict result(py::arg("x_stride") = tuple_of(layout.x_stride), py::arg("gy_stride") = tuple_of(layout.gy_stride),
                  py::arg("weight_stride") = tuple_of(layout.weight_stride), py::arg("runs") = layout.by_runs.value,
                  py::arg("taps") = convt::kDirectWeightTaps, py::arg("kernel_h") = layout.by_kernel_h.value,
                  py::arg("group_co") = layout.by_group_co.value, py::arg("group_ci") = layout.by_group_ci.value,
                  py::arg("columns") = layout.by_columns.value, py::arg("rows") = layout.by_rows.value,
                  py::arg("pixels") = layout.pixels, py::arg("num_blocks") = layout.num_blocks);
  return std::move(result);
}

void add_thin_direct_weight(py::module_& module) {
  module.def("thin_direct_weight_layout", &thin_direct_weight_layout);
}
