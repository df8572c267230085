// Gradient of the weight in the simt engine: plans, grids, tiles and layouts.
#include "module/values.h"
#include "simt/grad_weight_layout.h"

static convt::SimtGradWeightTile grad_weight_plan_of(const py::dict& values) {
  auto number = [&values](const char* key) { return field<int32_t>(values, key); };
  return convt::SimtGradWeightTile{
      number("instance"), number("block_ci"),    number("block_co"),
      number("block_kh"), number("block_runs"),  number("splits"),
      number("tile_h"),   number("tile_w_log2"), field<int64_t>(values, "tiles_per_chunk")};
}

static py::dict dict_of(const convt::GradWeightGrid& grid) {
  return py::dict(py::arg("chunks") = grid.chunks, py::arg("h_tiles") = grid.h_tiles, py::arg("w_tiles") = grid.w_tiles,
                  py::arg("pixel_tiles") = grid.pixel_tiles, py::arg("num_blocks") = convt::num_blocks(grid));
}

static py::dict dict_of(const convt::GradWeightTile& tile) {
  return py::dict(py::arg("run_begin") = tile.run_begin, py::arg("kh_begin") = tile.kh_begin,
                  py::arg("co_begin") = tile.co_begin, py::arg("ci_begin") = tile.ci_begin,
                  py::arg("group") = tile.group, py::arg("chunk") = tile.chunk);
}

static py::dict dict_of(const convt::GradWeightInstance& instance) {
  return py::dict(py::arg("name") = instance.name, py::arg("dtype") = static_cast<int>(instance.dtype),
                  py::arg("thread_ci") = instance.thread_ci, py::arg("thread_co") = instance.thread_co,
                  py::arg("thread_kw") = instance.thread_kw);
}

void add_grad_weight(py::module_& module) {
  module.def("grad_weight_instances", [] {
    py::list result;
    for (const convt::GradWeightInstance& instance : convt::kGradWeightInstances) result.append(dict_of(instance));
    return result;
  });
  module.def("grad_weight_grid", [](const py::dict& problem, const py::dict& plan) {
    return dict_of(convt::make_grad_weight_grid(problem_of(problem), grad_weight_plan_of(plan)));
  });
  module.def("grad_weight_tile", [](const py::dict& problem, const py::dict& plan_values, uint32_t block) {
    const convt::SimtGradWeightTile plan = grad_weight_plan_of(plan_values);
    return dict_of(convt::grad_weight_tile(convt::make_grad_weight_grid(problem_of(problem), plan), plan, block));
  });
  module.def("grad_weight_layout", [](const py::dict& problem, const py::dict& plan) {
    convt::GradWeightLayout layout{};
    const int64_t bytes = convt::make_grad_weight_layout(problem_of(problem), grad_weight_plan_of(plan), &layout);
    return py::dict(py::arg("bytes") = bytes, py::arg("rows") = dict_of(layout.rows),
                    py::arg("columns") = dict_of(layout.columns), py::arg("ci_pitch") = layout.ci_pitch,
                    py::arg("co_pitch") = layout.co_pitch, py::arg("output_elems") = layout.output_elems,
                    py::arg("stage_elems") = layout.stage_elems,
                    py::arg("places_bytes_begin") = layout.places_bytes_begin);
  });
}
