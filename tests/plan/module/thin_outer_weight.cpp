// Layout of the thin engine's outer products for the gradient of the weight.
#include "module/values.h"
#include "thin/outer_weight_layout.h"

// Returns the work of a plan's CTAs and the layout of a stage, or None for an illegal plan.
static py::object thin_outer_weight_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::ThinOuterWeightTile tile{number("instance"),        number("tile_h"),       number("tile_w"),
                                        number("tiles_per_chunk"), number("splits"),       number("block_ci"),
                                        number("block_kh"),        number("block_vectors")};
  convt::ThinOuterWeightLayout layout;
  if (!convt::make_thin_outer_weight_layout(problem_of(problem), tile, &layout)) return py::none();
  py::list positions;
  for (int32_t column = 0; column < layout.columns; ++column) {
    positions.append(convt::outer_position(layout, column));
  }
  py::dict rows(py::arg("step") = layout.rows.step, py::arg("position_step") = layout.rows.position_step,
                py::arg("extent") = layout.rows.extent, py::arg("unit") = layout.rows.unit,
                py::arg("copies") = layout.rows.copies);
  py::dict result(py::arg("width") = convt::kThinOuterWeightInstances[tile.instance].width, py::arg("rows") = rows,
                  py::arg("positions") = positions);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(columns), CONVT_FIELD(row_vectors), CONVT_FIELD(tile_h), CONVT_FIELD(tile_w), CONVT_FIELD(h_tiles);
  CONVT_FIELD(w_tiles), CONVT_FIELD(pixel_tiles), CONVT_FIELD(tiles_per_chunk), CONVT_FIELD(chunks);
  CONVT_FIELD(block_ci), CONVT_FIELD(block_kh), CONVT_FIELD(block_vectors), CONVT_FIELD(vector_tiles);
  CONVT_FIELD(kh_tiles), CONVT_FIELD(ci_tiles), CONVT_FIELD(num_blocks), CONVT_FIELD(splits), CONVT_FIELD(threads_ci);
  CONVT_FIELD(threads_columns), CONVT_FIELD(jobs), CONVT_FIELD(threads), CONVT_FIELD(gy_pitch), CONVT_FIELD(gy_begin);
  CONVT_FIELD(stage_bytes), CONVT_FIELD(list_begin), CONVT_FIELD(shared_bytes);
#undef CONVT_FIELD
  return result;
}

void add_thin_outer_weight(py::module_& module) {
  module.def("thin_outer_weight_layout", &thin_outer_weight_layout);
  module.attr("num_thin_outer_weight_instances") = convt::kNumThinOuterWeightInstances;
}
