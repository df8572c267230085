// Layout of the scatter engine.
#include "module/values.h"
#include "scatter_sm90a/layout.h"

// Returns the kernel parameters, or None for an illegal plan.
static py::object scatter_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::ScatterTile tile{number("instance"), number("strips"), number("tile_h"), number("chunk_steps"),
                                number("stages")};
  convt::ScatterLayout layout;
  if (!convt::make_scatter_layout(problem_of(problem), tile, &layout)) return py::none();
  py::dict result(py::arg("column_tiles") = layout.column_tiles.value, py::arg("row_tiles") = layout.row_tiles.value);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(slots), CONVT_FIELD(slot_columns), CONVT_FIELD(strips), CONVT_FIELD(strip_log2), CONVT_FIELD(pitch);
  CONVT_FIELD(first_row), CONVT_FIELD(end_row), CONVT_FIELD(tile_rows), CONVT_FIELD(first_column);
  CONVT_FIELD(end_column), CONVT_FIELD(begin_w), CONVT_FIELD(advance_w), CONVT_FIELD(reach_w), CONVT_FIELD(num_tiles);
  CONVT_FIELD(term_kw), CONVT_FIELD(terms), CONVT_FIELD(term_source), CONVT_FIELD(term_step), CONVT_FIELD(steps);
  CONVT_FIELD(chunk_steps), CONVT_FIELD(chunk_channels), CONVT_FIELD(box_channels), CONVT_FIELD(num_chunks),
      CONVT_FIELD(stages);
  CONVT_FIELD(stage_bytes), CONVT_FIELD(num_planes), CONVT_FIELD(num_units), CONVT_FIELD(weight_batch);
  CONVT_FIELD(weight_units), CONVT_FIELD(weights_begin), CONVT_FIELD(staged_begin), CONVT_FIELD(staged_bytes);
  CONVT_FIELD(unit_begin), CONVT_FIELD(plane_begin), CONVT_FIELD(barriers_begin), CONVT_FIELD(shared_bytes);
#undef CONVT_FIELD
  return result;
}

void add_scatter(py::module_& module) {
  module.attr("scatter_positions") = convt::kScatterPositions;
  module.attr("scatter_plane") = convt::kScatterPlane;
  module.attr("scatter_most_weights") = convt::kScatterMostWeights;
  module.def("scatter_layout", &scatter_layout);
}
