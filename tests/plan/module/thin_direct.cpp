// Layout of the direct engine: forward and gradient of the input.
#include "gather/layout.h"
#include "module/values.h"

py::dict dict_of(const convt::ConvTProblem& asked, const convt::TermsLayout& layout) {
  const bool forward = asked.direction == convt::Direction::kForward;
  py::list phases_h, phases_w, digits;
  for (int32_t i = 0; i < (forward ? asked.h.stride : 1); ++i) phases_h.append(dict_of(layout.phases_h[i]));
  for (int32_t i = 0; i < (forward ? asked.w.stride : 1); ++i) phases_w.append(dict_of(layout.phases_w[i]));
  for (const convt::FastDivmod& digit : layout.by_digits) digits.append(digit.value);
  py::dict result(py::arg("phases_h") = phases_h, py::arg("phases_w") = phases_w, py::arg("digits") = digits,
                  py::arg("group_co") = layout.by_group_co.value);
  result["source_stride"] = tuple_of(layout.source_stride);
  result["result_stride"] = tuple_of(layout.result_stride);
  result["weight_stride"] = tuple_of(layout.weight_stride);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(weight_group_stride), CONVT_FIELD(rows), CONVT_FIELD(columns), CONVT_FIELD(row_step);
  CONVT_FIELD(column_step), CONVT_FIELD(group_ci), CONVT_FIELD(terms), CONVT_FIELD(results);
  CONVT_FIELD(channels_last), CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  return result;
}

// Returns the kernel parameters, or None for an unsupported problem.
static py::object thin_direct_layout(const py::dict& problem) {
  const convt::ConvTProblem asked = problem_of(problem);
  convt::TermsLayout layout;
  if (!convt::make_thin_direct_layout(asked, &layout)) return py::none();
  return dict_of(asked, layout);
}

void add_thin_direct(py::module_& module) { module.def("thin_direct_layout", &thin_direct_layout); }
