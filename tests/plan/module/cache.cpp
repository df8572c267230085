// Bindings of the plan cache.
#include "plan/cache.h"

#include <array>
#include <memory>
#include <vector>

#include "module/values.h"

namespace {

// A result of the cache. Two results can be compared for identity while both are alive.
struct Remembered {
  std::shared_ptr<const std::vector<convt::Plan>> plans;
};

}  // namespace

void add_cache(py::module_& module) {
  py::class_<Remembered>(module, "Remembered")
      .def("same", [](const Remembered& a, const Remembered& b) { return a.plans == b.plans; })
      .def_property_readonly("plans", [](const Remembered& answer) {
        py::list plans;
        for (const convt::Plan& plan : *answer.plans) {
          py::dict dict;
          dict["kernel"] = plan.kernel;
          dict["workspace_bytes"] = plan.workspace_bytes;
          dict["source_on_vectors"] = plan.source_on_vectors;
          dict["weight_on_vectors"] = plan.weight_on_vectors;
          dict["result_on_vectors"] = plan.result_on_vectors;
          dict["estimate_us"] = plan.estimate_us;
          plans.append(dict);
        }
        return plans;
      });
  module.def(
      "cached_plans",
      [](const py::dict& problem, const std::array<int64_t, 6>& device, int64_t preferred) {
        return Remembered{convt::cached_plans(problem_of(problem), device_of(device), preferred)};
      },
      py::arg("problem"), py::arg("device"), py::arg("preferred") = 0);
  module.def("cached_choice", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return Remembered{convt::cached_choice(problem_of(problem), device_of(device))};
  });
  module.def("contenders", [](const py::dict& problem, const std::array<int64_t, 6>& device, size_t most) {
    return convt::contenders(convt::candidate_plans(problem_of(problem), device_of(device)), most);
  });
  module.def("plan_cache_size", [] {
    const convt::CacheSize size = convt::plan_cache_size();
    return py::make_tuple(size.entries, size.bytes, convt::kMaxPlanCacheBytes);
  });
}
