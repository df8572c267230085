// `_plan`: planner internals for pytest. Built by tests/plan/build.py from kernels/problem and kernels/plan with a host
// compiler only, which proves that they need neither torch nor CUDA. Called by: tests/plan. Never shipped: pybind11
// does not support abi3 extensions.
#include "module/values.h"
#include "plan/tensor_map.h"
#include "problem/adjoint.h"
#include "problem/describe.h"
#include "problem/fuse.h"
#include "problem/shapes.h"
#include "problem/volume.h"

// Describes a float32 box with these values and defaults for the rest. `address` is the tensor's base address.
static std::string describe_box(const std::array<int64_t, 4>& sizes, const std::array<int64_t, 3>& strides,
                                const std::array<int32_t, 4>& boxes, uintptr_t address) {
  convt::TensorBox box{};
  box.data = reinterpret_cast<const void*>(address);
  for (size_t i = 0; i < sizes.size(); ++i) box.sizes[i] = sizes[i], box.box[i] = boxes[i];
  for (size_t i = 0; i < strides.size(); ++i) box.strides[i] = strides[i];
  return convt::describe(convt::DataType::kFloat32, box);
}

using py::literals::operator""_a;

PYBIND11_MODULE(_plan, module) {
  module.doc() = "The planner of convt_ext, for its tests.";
  module.def("num_positions",
             [](const py::dict& axis, int32_t phase) { return convt::num_positions(axis_of(axis), phase); });
  module.def("make_phase",
             [](const py::dict& axis, int32_t phase) { return dict_of(convt::make_phase(axis_of(axis), phase)); });
  module.def("max_taps", [](const py::dict& axis) { return convt::max_taps(axis_of(axis)); });
  module.def("fits_axis", [](const py::dict& axis) {
    auto size = [&axis](const char* key) { return field<int64_t>(axis, key); };
    return convt::fits_axis(size("in"), size("out"), size("kernel"), size("stride"), size("padding"), size("dilation"));
  });
  module.def("can_fuse_phases", [](const py::dict& problem) { return convt::can_fuse_phases(problem_of(problem)); });
  module.def("fuse_phases", [](const py::dict& problem) { return dict_of(convt::fuse_phases(problem_of(problem))); });
  module.def("row_window", [](int32_t num_taps, int32_t shift_step, int32_t position_step, int32_t tile_h) {
    return dict_of(convt::row_window(num_taps, shift_step, position_step, tile_h));
  });
  module.def("column_window", [](int32_t num_taps, int32_t shift_step, int32_t position_step, int32_t tile_w) {
    return dict_of(convt::column_window(num_taps, shift_step, position_step, tile_w));
  });
  module.def("adjoint_problem",
             [](const py::dict& problem) { return dict_of(convt::adjoint_problem(problem_of(problem))); });
  module.def("input_pitch", &convt::input_pitch);
  module.def("input_plane", &convt::input_plane);
  module.def("describe", [](const py::dict& problem) { return convt::describe(problem_of(problem)); });
  module.def("describe_box", &describe_box);
  module.def("settle_strides", [](const py::dict& problem) {
    convt::ConvTProblem settled = problem_of(problem);
    convt::settle_strides(&settled);
    return dict_of(settled);
  });
  module.def("without_depth", [](const py::dict& problem) {
    const convt::ConvTProblem flat = convt::without_depth(problem_of(problem));
    return py::make_tuple(convt::is_volume(flat), dict_of(flat));
  });
  module.def("stack_planes", [](const py::dict& problem) -> py::object {
    convt::StackedProblem stacked;
    if (!convt::stack_planes(problem_of(problem), &stacked)) return py::none();
    py::dict found = dict_of(stacked);
    found["planes"] = stacked.planes;
    found["plane_rows"] = stacked.plane_rows;
    found["x_batch"] = stacked.x_batch;
    found["y_batch"] = stacked.y_batch;
    found["y_plane"] = stacked.y_plane;
    return found;
  });
  module.def("join_planes", [](const py::dict& problem) -> py::object {
    convt::JoinedProblem joined;
    if (!convt::join_planes(problem_of(problem), &joined)) return py::none();
    py::dict found = dict_of(joined);
    const convt::PlaneRows& planes = joined.planes;
    found["planes"] = py::dict("input"_a = planes.input, "taps"_a = planes.taps, "row_gap"_a = planes.row_gap,
                               "tap_gap"_a = planes.tap_gap);
    return found;
  });
  module.def("plane_slices", [](const py::dict& problem) {
    py::list found;
    for (const convt::PlaneSlice& slice : convt::plane_slices(problem_of(problem))) {
      found.append(py::dict("first_plane"_a = slice.first_plane, "plane_step"_a = slice.plane_step,
                            "num_planes"_a = slice.num_planes, "source_plane"_a = slice.source_plane,
                            "source_step"_a = slice.source_step, "source_tap_step"_a = slice.source_tap_step,
                            "first_tap"_a = slice.first_tap, "tap_step"_a = slice.tap_step,
                            "num_taps"_a = slice.num_taps));
    }
    return found;
  });
  module.def("plane_pairs", [](const py::dict& problem, int32_t tap) {
    const convt::PlanePairs pairs = convt::plane_pairs(problem_of(problem).d, tap);
    return py::make_tuple(pairs.x, pairs.y, pairs.count);
  });
  add_tiles(module);
  add_plans(module);
  add_cache(module);
}
