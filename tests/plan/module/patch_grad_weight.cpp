// The layout of the patch engine's gradient of the weight.
#include "module/values.h"
#include "patch_sm90a/grad_weight_layout.h"

// What the kernel is launched with, or None for an illegal plan.
static py::object patch_grad_weight_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::PatchGradWeightTile tile{number("instance"),       number("ci_parts"), number("kh_parts"),
                                        number("rows"),           number("pixels"),   number("slots"),
                                        number("units_per_chunk")};
  convt::PatchGradWeightLayout layout;
  if (!convt::make_patch_grad_weight_layout(problem_of(problem), tile, &layout)) return py::none();
  py::dict result;
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(group_ci), CONVT_FIELD(group_co), CONVT_FIELD(channels), CONVT_FIELD(kernel_h), CONVT_FIELD(kernel_w);
  CONVT_FIELD(co_tiles), CONVT_FIELD(ci_tiles), CONVT_FIELD(kh_tiles), CONVT_FIELD(ci_parts), CONVT_FIELD(kh_parts);
  CONVT_FIELD(passes), CONVT_FIELD(num_units), CONVT_FIELD(units_per_chunk), CONVT_FIELD(chunks);
  CONVT_FIELD(strips), CONVT_FIELD(row_units), CONVT_FIELD(rows), CONVT_FIELD(pixels), CONVT_FIELD(steps);
  CONVT_FIELD(whole_rows), CONVT_FIELD(columns), CONVT_FIELD(pitch), CONVT_FIELD(boxes), CONVT_FIELD(gy_begin);
  CONVT_FIELD(stage_bytes), CONVT_FIELD(slots), CONVT_FIELD(barriers_begin), CONVT_FIELD(threads);
  CONVT_FIELD(shared_bytes), CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  return result;
}

void add_patch_grad_weight(py::module_& module) {
  py::list columns;
  for (const auto& instance : convt::kPatchGradWeightInstances) columns.append(instance.columns);
  module.attr("patch_weight_columns") = columns;
  module.attr("patch_weight_rows") = convt::kPatchWeightRows;
  module.def("patch_grad_weight_layout", &patch_grad_weight_layout);
}
