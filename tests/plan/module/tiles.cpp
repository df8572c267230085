// Tiles of the simt engine, and tap programs.
#include <pybind11/numpy.h>

#include "module/values.h"
#include "plan/tap_program.h"
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

static py::list instances() {
  py::list result;
  for (const convt::Instance& instance : convt::kInstances) result.append(dict_of(instance));
  return result;
}

void add_tiles(py::module_& module) {
  module.def("shared_bytes", [](const py::dict& problem, const py::dict& plan) {
    convt::SharedLayout layout{};
    return convt::make_shared_layout(problem_of(problem), plan_of(plan), &layout);
  });
  module.def("tap_program", &tap_program, py::arg("problem"), py::arg("apart") = false);
  module.attr("max_phases_w") = convt::kMaxPhasesW;
  module.attr("max_stages") = convt::kMaxStages;
  module.def("instances", &instances);
  module.def("tile_grid",
             [](const py::dict& problem, const py::dict& shape) { return dict_of(grid_of(problem, shape)); });
  module.def("num_tiles",
             [](const py::dict& problem, const py::dict& shape) { return convt::num_tiles(grid_of(problem, shape)); });
  module.def("all_tiles", &all_tiles);
}
