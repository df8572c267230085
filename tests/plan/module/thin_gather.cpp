// Layout of the gather engine's gathered terms.
#include "module/values.h"
#include "gather/instances.h"
#include "gather/layout.h"

void add_tiles_of(const convt::ThinTiledLayout& layout, py::dict& result) {
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(group_co), CONVT_FIELD(result_rows), CONVT_FIELD(result_columns), CONVT_FIELD(num_positions);
  CONVT_FIELD(block_positions), CONVT_FIELD(block_channels);
#undef CONVT_FIELD
#define CONVT_DIVISOR(name) result[#name] = layout.name.value
  CONVT_DIVISOR(by_columns), CONVT_DIVISOR(by_rows), CONVT_DIVISOR(by_channel_tiles), CONVT_DIVISOR(by_phases);
  CONVT_DIVISOR(by_position_tiles);
#undef CONVT_DIVISOR
}

// Returns the kernel parameters, or None for an illegal plan.
static py::object thin_gather_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ConvTProblem asked = problem_of(problem);
  const convt::ThinGatherTile tile{
      field<int32_t>(plan, "instance"),       field<int32_t>(plan, "lanes_channels"),
      field<int32_t>(plan, "warps_channels"), field<int32_t>(plan, "warps_positions"),
      field<int32_t>(plan, "chunk_ci"),       field<int32_t>(plan, "chunk_taps"),
      field<int32_t>(plan, "stages"),
  };
  convt::ThinGatherLayout layout;
  if (!convt::make_thin_gather_layout(asked, tile, &layout)) return py::none();
  py::dict result = dict_of(asked, layout);
  add_tiles_of(layout, result);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(lanes_channels), CONVT_FIELD(warps_channels), CONVT_FIELD(warps_positions), CONVT_FIELD(chunk_ci),
      CONVT_FIELD(chunk_taps), CONVT_FIELD(stages);
  CONVT_FIELD(load_lanes_log2), CONVT_FIELD(table_positions), CONVT_FIELD(source_pitch), CONVT_FIELD(weight_pitch);
  CONVT_FIELD(weight_channel_pitch), CONVT_FIELD(bits_begin), CONVT_FIELD(terms_begin), CONVT_FIELD(stage_begin);
  CONVT_FIELD(stage_weight), CONVT_FIELD(stage_bytes), CONVT_FIELD(threads), CONVT_FIELD(shared_bytes);
  CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  return result;
}

void add_thin_gather(py::module_& module) { module.def("thin_gather_layout", &thin_gather_layout); }
