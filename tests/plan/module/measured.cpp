// The tables of measurements: their rows as the planner reads them, and the plans that a row can name.
#include "plan/measured.h"

#include <algorithm>
#include <string>
#include <vector>

#include "module/values.h"

// All candidates in the order of their estimates, before the best ones are kept and the measured one is put first.
static std::vector<convt::Plan> every_plan(const convt::ConvTProblem& problem, const convt::DeviceInfo& device) {
  std::vector<convt::Plan> plans;
  for (const convt::Family& family : convt::kFamilies) {
    if (family.serves(problem, device)) family.add(problem, device, &plans);
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const convt::Plan& a, const convt::Plan& b) { return a.estimate_us < b.estimate_us; });
  return plans;
}

// As to_json() tells a plan, in its order.
static py::dict tile_of(const convt::Plan& plan) {
  py::dict result(py::arg("kernel") = plan.kernel, py::arg("threads") = plan.threads);
  convt::visit_fields(plan.tile, [&result](const char* name, auto value) { result[name] = value; });
  result["shared_bytes"] = plan.shared_bytes, result["num_blocks"] = plan.num_blocks;
  return result;
}

static py::list numbers_of(const convt::MeasuredProblem& problem) {
  py::list numbers;
  for (const int64_t number : problem) numbers.append(number);
  return numbers;
}

void add_measured(py::module_& module) {
  module.def("parse_measured_plans", [](const std::string& text) {
    py::list rows;
    for (const convt::MeasuredPlan& row : convt::parse_measured_plans(text)) {
      py::dict knobs;
      for (const convt::Knob& knob : row.knobs) knobs[py::str(std::string(knob.name))] = std::string(knob.value);
      rows.append(
          py::make_tuple(numbers_of(row.problem), std::string(row.kernel), knobs, row.measured_us, row.instead_us));
    }
    return rows;
  });
  module.def("parse_measured_torch", [](const std::string& text) {
    py::list rows;
    for (const convt::MeasuredTorch& row : convt::parse_measured_torch(text)) {
      rows.append(py::make_tuple(numbers_of(row.problem), row.torch_us));
    }
    return rows;
  });
  // The row of a table of this text, by its place; the plans that it names, and all others of the problem.
  module.def("named_plans",
             [](const std::string& text, size_t place, const py::dict& problem, const std::array<int64_t, 6>& device) {
               const convt::MeasuredPlan row = convt::parse_measured_plans(text).at(place);
               py::list named, others;
               for (const convt::Plan& plan : every_plan(problem_of(problem), device_of(device))) {
                 (names(row, plan) ? named : others).append(tile_of(plan));
               }
               return py::make_tuple(named, others);
             });
}
