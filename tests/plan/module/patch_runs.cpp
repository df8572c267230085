// Layout of the patch engine's kernel for runs of grad_output.
#include "module/values.h"
#include "patch_sm90a/layout.h"

// Returns the kernel parameters, or None for an illegal plan.
static py::object patch_runs_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::PatchRunsTile tile{number("instance"), number("channels"), number("rows"), number("splits"),
                                  number("slots")};
  convt::PatchRunsLayout layout;
  if (!convt::make_patch_runs_layout(problem_of(problem), tile, &layout)) return py::none();
  py::dict result;
#define CONVT_FIELD(name) result[#name] = layout.name
#define CONVT_DIVISOR(name) result[#name] = layout.name.value
  CONVT_DIVISOR(by_image), CONVT_DIVISOR(by_rows), CONVT_DIVISOR(by_width), CONVT_DIVISOR(channel_tiles);
  CONVT_FIELD(positions), CONVT_FIELD(total_rows), CONVT_FIELD(rows), CONVT_FIELD(splits), CONVT_FIELD(splits_log2);
  CONVT_FIELD(num_stages), CONVT_FIELD(stage_channels), CONVT_FIELD(stage_elements), CONVT_FIELD(kernel_h);
  CONVT_FIELD(patch_log2), CONVT_FIELD(columns_log2), CONVT_FIELD(line_bytes), CONVT_FIELD(row_bytes);
  CONVT_FIELD(channel_pitch), CONVT_FIELD(boxes), CONVT_FIELD(slots);
  CONVT_FIELD(weights_bytes), CONVT_FIELD(source_bytes), CONVT_FIELD(sums_begin), CONVT_FIELD(sums_bytes);
  CONVT_FIELD(barriers_begin), CONVT_FIELD(threads), CONVT_FIELD(shared_bytes), CONVT_FIELD(num_blocks);
#undef CONVT_DIVISOR
#undef CONVT_FIELD
  return result;
}

void add_patch_runs(py::module_& module) {
  module.attr("runs_positions") = convt::kRunsPositions;
  module.attr("runs_staged_pitch") = convt::kRunsStagedPitch;
  module.def("patch_runs_layout", &patch_runs_layout);
}
