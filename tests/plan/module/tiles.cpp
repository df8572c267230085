// Tiles, their shared-memory layouts, and tap programs.
#include <pybind11/numpy.h>

#include "flat_sm90a/layout.h"
#include "module/values.h"
#include "nhwc_sm90a/layout.h"
#include "plan/tap_program.h"
#include "rows_sm90a/layout.h"
#include "simt/instances.h"
#include "simt/layout.h"

static convt::TileShape shape_of(const py::dict& values) {
  return convt::TileShape{field<int32_t>(values, "block_co"), field<int32_t>(values, "tile_n"),
                          field<int32_t>(values, "tile_h"), field<int32_t>(values, "tile_w"),
                          field<int32_t>(values, "phases_w")};
}

static convt::SimtTile plan_of(const py::dict& values) {
  convt::SimtTile plan{};
  plan.instance = field<int32_t>(values, "instance");
  plan.block_co = field<int32_t>(values, "block_co");
  plan.tile_n = field<int32_t>(values, "tile_n");
  plan.tile_h = field<int32_t>(values, "tile_h");
  plan.tile_w = field<int32_t>(values, "tile_w");
  plan.fused_w = field<int32_t>(values, "fused_w");
  plan.phases_w = field<int32_t>(values, "phases_w");
  plan.chunk_ci = field<int32_t>(values, "chunk_ci");
  plan.chunk_kh = field<int32_t>(values, "chunk_kh");
  plan.chunk_kw = field<int32_t>(values, "chunk_kw");
  plan.stages = field<int32_t>(values, "stages");
  return plan;
}

static py::dict dict_of(const convt::Instance& instance) {
  return py::dict(py::arg("name") = instance.name, py::arg("dtype") = static_cast<int>(instance.dtype),
                  py::arg("precision") = static_cast<int>(instance.precision),
                  py::arg("direction") = static_cast<int>(instance.direction),
                  py::arg("thread_co") = instance.thread_co, py::arg("quads") = instance.quads);
}

static py::dict dict_of(const convt::TileGrid& grid) {
  return py::dict(py::arg("co_tiles") = grid.co_tiles, py::arg("w_tiles") = grid.w_tiles,
                  py::arg("w_splits") = grid.w_splits, py::arg("h_phases") = grid.h_phases,
                  py::arg("h_tiles") = grid.h_tiles, py::arg("groups") = grid.groups, py::arg("n_tiles") = grid.n_tiles,
                  py::arg("w_phases") = grid.w_phases, py::arg("w_origin") = grid.w_origin);
}

static py::dict dict_of(const convt::Tile& tile) {
  return py::dict(py::arg("n_begin") = tile.n_begin, py::arg("group") = tile.group, py::arg("co_begin") = tile.co_begin,
                  py::arg("phase_h") = tile.phase_h, py::arg("p_h_begin") = tile.p_h_begin,
                  py::arg("phase_w_begin") = tile.phase_w_begin, py::arg("num_phases_w") = tile.num_phases_w,
                  py::arg("p_w_begin") = tile.p_w_begin);
}

// From here on, `problem` is the computed problem: the fused one if the plan fuses phases.
static convt::TileGrid grid_of(const py::dict& problem, const py::dict& shape) {
  return convt::make_tile_grid(problem_of(problem), shape_of(shape));
}

// Returns all tiles of a problem in one call, for speed: [num_tiles, 8], columns in the order of struct Tile.
static py::array_t<int32_t> all_tiles(const py::dict& problem, const py::dict& shape_values) {
  const convt::TileShape shape = shape_of(shape_values);
  const convt::TileGrid grid = convt::make_tile_grid(problem_of(problem), shape);
  const int64_t count = convt::num_tiles(grid);
  py::array_t<int32_t> result({count, int64_t{8}});
  auto rows = result.mutable_unchecked<2>();
  for (int64_t block = 0; block < count; ++block) {
    const convt::Tile tile = convt::tile_of_block(grid, shape, static_cast<uint32_t>(block));
    const int32_t row[8] = {tile.n_begin,   tile.group,         tile.co_begin,     tile.phase_h,
                            tile.p_h_begin, tile.phase_w_begin, tile.num_phases_w, tile.p_w_begin};
    for (int64_t column = 0; column < 8; ++column) rows(block, column) = row[column];
  }
  return result;
}

static py::dict dict_of(const convt::TapRun& run) {
  return py::dict(py::arg("kh") = run.kh, py::arg("kw") = run.kw, py::arg("kh_step") = run.kh_step,
                  py::arg("kw_step") = run.kw_step, py::arg("num_h") = run.num_h, py::arg("num_w") = run.num_w,
                  py::arg("row") = run.row, py::arg("column") = run.column, py::arg("row_step") = run.row_step,
                  py::arg("column_step") = run.column_step, py::arg("sub") = run.sub,
                  py::arg("first_tap") = run.first_tap);
}

// Returns None if the tables are too small.
static py::object tap_program(const py::dict& problem, bool apart) {
  convt::TapProgram program;
  if (!convt::make_tap_program(problem_of(problem), &program, apart)) return py::none();
  auto windows = [](const convt::AxisWindow* axis, int32_t count) {
    py::list result;
    for (int32_t i = 0; i < count; ++i) {
      result.append(py::dict(py::arg("shift") = axis[i].shift, py::arg("residue") = axis[i].residue));
    }
    return result;
  };
  py::list runs, taps_before;
  for (int32_t i = 0; i < program.num_runs; ++i) runs.append(dict_of(program.runs[i]));
  for (int32_t i = 0; i < program.phases_h; ++i) taps_before.append(program.taps_before[i]);
  return py::dict(py::arg("source_step_h") = program.source_step_h, py::arg("source_step_w") = program.source_step_w,
                  py::arg("phases_w") = program.phases_w, py::arg("sub_h") = program.sub_h,
                  py::arg("sub_w") = program.sub_w,
                  py::arg("window_h") = windows(program.window_h, program.phases_h * program.sub_h),
                  py::arg("window_w") = windows(program.window_w, program.phases_w * program.sub_w),
                  py::arg("extra_h") = program.extra_h, py::arg("extra_w") = program.extra_w, py::arg("runs") = runs,
                  py::arg("taps_before") = taps_before, py::arg("total_taps") = program.total_taps);
}

// Element layout of the flat engine's packed source, for a problem with a tap program.
static py::dict flat_geometry(const py::dict& problem) {
  const convt::ConvTProblem asked = problem_of(problem);
  convt::TapProgram program;
  convt::FlatGeometry geometry;
  if (!convt::make_tap_program(asked, &program) || !convt::make_flat_geometry(asked, program, &geometry)) {
    throw std::invalid_argument("the flat engine has no geometry for this problem");
  }
  return py::dict(py::arg("rows") = geometry.rows, py::arg("columns") = geometry.columns,
                  py::arg("pitch") = geometry.pitch, py::arg("image_rows") = geometry.image_rows,
                  py::arg("lead") = geometry.lead, py::arg("positions") = geometry.positions);
}

static py::tuple window_shifts(const py::dict& problem) {
  const convt::ConvTProblem asked = problem_of(problem);
  return py::make_tuple(convt::window_shift(asked.h, asked.direction), convt::window_shift(asked.w, asked.direction));
}

// NHWC windows of each run of a problem's tap program.
static py::list nhwc_windows(const py::dict& problem, bool apart) {
  convt::TapProgram program;
  py::list result;
  if (!convt::make_tap_program(problem_of(problem), &program, apart)) return result;
  for (int32_t run = 0; run < program.num_runs; ++run) {
    const convt::NhwcWindow window = convt::make_nhwc_window(program, run);
    result.append(py::dict(py::arg("row") = window.row, py::arg("column") = window.column,
                           py::arg("extra_h") = window.extra_h, py::arg("extra_w") = window.extra_w,
                           py::arg("first_row") = window.first_row, py::arg("first_column") = window.first_column));
  }
  return result;
}

static py::list instances() {
  py::list result;
  for (const convt::Instance& instance : convt::kInstances) result.append(dict_of(instance));
  return result;
}

void add_tiles(py::module_& module) {
  module.def("shared_layout", [](const py::dict& problem, const py::dict& plan) {
    convt::SharedLayout layout{};
    const int64_t bytes = convt::make_shared_layout(problem_of(problem), plan_of(plan), &layout);
    return py::dict(py::arg("bytes") = bytes, py::arg("stage_elems") = layout.stage_elems,
                    py::arg("weight_elems") = layout.weight_elems,
                    py::arg("staged_bytes_begin") = layout.staged_bytes_begin,
                    py::arg("channel_stride") = layout.channel_stride, py::arg("column_stride") = layout.column_stride,
                    py::arg("total_bytes") = layout.total_bytes);
  });
  module.def("tap_program", &tap_program, py::arg("problem"), py::arg("apart") = false);
  module.def("flat_geometry", &flat_geometry);
  module.def("window_shifts", &window_shifts);
  module.def("nhwc_windows", &nhwc_windows);
  module.attr("max_phases_w") = convt::kMaxPhasesW;
  module.attr("max_stages") = convt::kMaxStages;
  module.def("instances", &instances);
  module.def("tile_grid",
             [](const py::dict& problem, const py::dict& shape) { return dict_of(grid_of(problem, shape)); });
  module.def("num_tiles",
             [](const py::dict& problem, const py::dict& shape) { return convt::num_tiles(grid_of(problem, shape)); });
  module.def("tile_of_block", [](const py::dict& problem, const py::dict& shape, uint32_t block) {
    return dict_of(convt::tile_of_block(grid_of(problem, shape), shape_of(shape), block));
  });
  module.def("all_tiles", &all_tiles);
}
