// Candidates of a problem, their estimates, and the estimated time of PyTorch.
#include <array>
#include <vector>

#include "families/families.h"
#include "module/values.h"

// Adds values that no field of the tile shows.
static void add_places(const convt::PatchTile& tile, py::dict& result) { result["stages_end"] = tile.barriers_begin; }

static void add_places(const convt::StridedTile& tile, py::dict& result) { result["stages_end"] = tile.zeros_begin; }

static void add_places(const convt::NhwcTile& tile, py::dict& result) {
  result["num_windows"] = tile.num_windows, result["stages_end"] = tile.staged_begin;
  result["divided"] = tile.split_tiles;
}

template <typename OtherTile>
static void add_places(const OtherTile&, py::dict&) {}

static py::dict dict_of(const convt::Plan& plan) {
  py::dict result(
      py::arg("engine") = plan.family->engine, py::arg("family") = plan.family->name, py::arg("kernel") = plan.kernel,
      py::arg("threads") = plan.threads, py::arg("shared_bytes") = plan.shared_bytes,
      py::arg("num_blocks") = plan.num_blocks, py::arg("workspace_bytes") = plan.workspace_bytes,
      py::arg("source_on_vectors") = plan.source_on_vectors, py::arg("weight_on_vectors") = plan.weight_on_vectors,
      py::arg("result_on_vectors") = plan.result_on_vectors, py::arg("gives_grad_bias") = plan.gives_grad_bias,
      py::arg("packed_bytes") = plan.packed_bytes, py::arg("compute_us") = plan.compute_us,
      py::arg("memory_us") = plan.memory_us, py::arg("estimate_us") = plan.estimate_us);
  py::list fields;
  convt::visit_fields(plan.tile, [&](std::string_view name, auto value) {
    fields.append(name);
    result[py::str(name)] = value;
  });
  result["fields"] = fields;
#define CONVT_ROW(Tile, ...)                                \
  if (const auto* tile = plan.tile.get_if<convt::Tile>()) { \
    result["instance"] = tile->instance;                    \
    add_places(*tile, result);                              \
  }
  CONVT_FAMILIES(CONVT_ROW)
#undef CONVT_ROW
  return result;
}

static py::list list_of(const std::vector<convt::Plan>& plans) {
  py::list result;
  for (const convt::Plan& plan : plans) result.append(dict_of(plan));
  return result;
}

void add_plans(py::module_& module) {
  module.def("candidates", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    const convt::ConvTProblem asked = problem_of(problem);
    return list_of(convt::candidate_plans(asked, device_of(device)));
  });
  module.def("choose", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return dict_of(convt::choose_plan(problem_of(problem), device_of(device)));
  });
  // Returns the instance of the chosen plan, which must be a window plan.
  module.def("window_instance", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return convt::tile_of<convt::WindowTile>(convt::choose_plan(problem_of(problem), device_of(device))).instance;
  });
  module.def(
      "floor_us",
      [](const py::dict& problem, const std::array<int64_t, 6>& device, double rate_tflops) {
        return convt::floor_us(problem_of(problem), device_of(device), rate_tflops);
      },
      py::arg("problem"), py::arg("device"), py::arg("rate_tflops") = 0.0);
  module.def("torch_us", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return convt::torch_us(problem_of(problem), device_of(device));
  });
  module.def("to_json", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return convt::to_json(problem_of(problem), device_of(device));
  });
  module.def("h200", [] {
    const convt::DeviceInfo device = convt::h200();
    return py::make_tuple(device.compute_capability, device.num_sms, device.shared_per_block, device.shared_per_sm,
                          device.clock_ghz, device.copy_gb_per_s);
  });
}
