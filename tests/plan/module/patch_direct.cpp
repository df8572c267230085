// Layout of the patch engine's kernel for unpacked weights.
#include "module/values.h"
#include "patch_sm90a/layout.h"

// Returns the kernel parameters, or None for an illegal plan.
static py::object patch_direct_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::PatchDirectTile tile{number("instance"), number("consumers"), number("tiles"), number("slots")};
  convt::PatchDirectLayout layout;
  if (!convt::make_patch_direct_layout(problem_of(problem), tile, &layout)) return py::none();
  py::dict result;
#define CONVT_FIELD(name) result[#name] = layout.name
#define CONVT_DIVISOR(name) result[#name] = layout.name.value
  CONVT_DIVISOR(by_image), CONVT_DIVISOR(by_row), CONVT_DIVISOR(position_tiles);
  CONVT_DIVISOR(channel_quads), CONVT_DIVISOR(row_quads);
  CONVT_FIELD(positions), CONVT_FIELD(k_channels), CONVT_FIELD(n_channels), CONVT_FIELD(columns);
  CONVT_FIELD(column_tiles), CONVT_FIELD(block_tiles), CONVT_FIELD(num_chunks);
  CONVT_FIELD(kernel_h), CONVT_FIELD(kernel_w), CONVT_FIELD(slots);
  CONVT_FIELD(weights_begin), CONVT_FIELD(staged_begin), CONVT_FIELD(barriers_begin), CONVT_FIELD(shared_bytes);
  CONVT_FIELD(num_blocks);
#undef CONVT_DIVISOR
#undef CONVT_FIELD
  return result;
}

void add_patch_direct(py::module_& module) {
  module.attr("direct_positions") = convt::kDirectPositions;
  module.attr("direct_columns") = convt::kDirectColumns;
  module.attr("direct_stage_bytes") = convt::kDirectStageBytes;
  module.def("patch_direct_layout", &patch_direct_layout);
}
