// The upsample engine's layout.
#include "module/values.h"
#include "upsample_sm90a/layout.h"

// What the kernel is launched with, or None for an illegal plan.
static py::object upsample_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::UpsampleTile tile{number("instance"), number("tile_h"), number("shares"), number("slots")};
  convt::UpsampleLayout layout;
  if (!convt::make_upsample_layout(problem_of(problem), tile, &layout)) return py::none();
  py::dict result;
#define CONVT_FIELD(name) result[#name] = layout.name
#define CONVT_DIVISOR(name) result[#name] = layout.name.value
  CONVT_DIVISOR(octets), CONVT_DIVISOR(channel_blocks), CONVT_DIVISOR(stride_h), CONVT_DIVISOR(column_tiles);
  CONVT_DIVISOR(row_tiles), CONVT_DIVISOR(slots);
  CONVT_FIELD(num_operands), CONVT_FIELD(shares), CONVT_FIELD(rows), CONVT_FIELD(tile_rows), CONVT_FIELD(num_tiles);
  CONVT_FIELD(pitch), CONVT_FIELD(slot_bytes), CONVT_FIELD(weights_begin), CONVT_FIELD(bias_begin);
  CONVT_FIELD(barriers_begin), CONVT_FIELD(shared_bytes);
#undef CONVT_DIVISOR
#undef CONVT_FIELD
  return result;
}

void add_upsample(py::module_& module) {
  module.attr("upsample_positions") = convt::kUpsamplePositions;
  module.attr("upsample_channels") = convt::kUpsampleChannels;
  module.attr("upsample_step_bytes") = convt::kUpsampleStepBytes;
  module.def("upsample_layout", &upsample_layout);
}
