// `_launches`: the launches that kernels/launch would enqueue on a stream, for every candidate of a problem. Built by
// tests/plan/build.py with CUDA's headers and without its libraries. Called by: tests/launch, tools.
#include <string>

#include "launch/launch.h"
#include "launch/recorder.h"
#include "module/values.h"
#include "plan/family.h"
#include "portable/layout.h"

namespace {

void* address(uint64_t number) { return reinterpret_cast<void*>(number); }

// Distinct fake addresses. The result is 256-byte aligned; operands start `offset` bytes after such an address.
convt::Pointers pointers_of(const convt::ConvTProblem& problem, const convt::Plan& plan, int64_t offset,
                            bool is_packed) {
  constexpr uint64_t kApart = uint64_t{1} << 40;
  convt::Pointers pointers{};
  const auto of = [&](uint64_t place, convt::Direction written) {
    return address(place * kApart + (problem.direction == written ? 0 : offset));
  };
  pointers.x = of(1, convt::Direction::kGradInput);
  pointers.w = of(2, convt::Direction::kGradWeight);
  pointers.bias = problem.has_bias ? address(3 * kApart + offset) : nullptr;
  pointers.y = of(4, convt::Direction::kForward);
  pointers.packed = plan.packed_bytes > 0 ? address(5 * kApart) : nullptr;
  pointers.workspace = plan.workspace_bytes > plan.packed_bytes ? address(6 * kApart) : nullptr;
  pointers.is_packed = is_packed && plan.packed_bytes > 0;
  return pointers;
}

py::tuple head_of(const convt::Plan& plan) {
  return py::make_tuple(plan.family->engine, plan.kernel, static_cast<int32_t>(plan.served_precision), plan.threads,
                        plan.shared_bytes, plan.num_blocks, plan.workspace_bytes, plan.packed_bytes,
                        plan.result_on_vectors, plan.source_on_vectors, plan.weight_on_vectors, plan.compute_us,
                        plan.memory_us, plan.estimate_us);
}

py::list launches_of(const convt::ConvTProblem& problem, const convt::Plan& plan, const convt::Pointers& pointers) {
  py::list result;
  take_launches();
  convt::launch(problem, plan, pointers, nullptr);
  for (const RecordedLaunch& launch : take_launches()) {
    py::list arguments;
    for (const std::string& bytes : launch.arguments) arguments.append(py::bytes(bytes));
    result.append(py::make_tuple(launch.kernel, launch.name, launch.blocks, launch.threads_x, launch.threads_y,
                                 launch.shared_bytes, launch.waits_itself, launch.cluster, arguments));
  }
  return result;
}

}  // namespace

PYBIND11_MODULE(_launches, module) {
  module.doc() = "The launchers of convt_ext without a GPU, for their tests.";
  // For each candidate: the plan's fields, its list of launches (or an error text if it cannot be launched or throws),
  // and whether a further launch of the kernel reduces its slabs.
  module.def(
      "launches",
      [](const py::dict& asked, const std::array<int64_t, 6>& device, int64_t offset, bool is_packed) {
        const convt::ConvTProblem problem = problem_of(asked);
        py::list result;
        for (const convt::Plan& plan : convt::candidate_plans(problem, device_of(device))) {
          const convt::Pointers pointers = pointers_of(problem, plan, offset, is_packed);
          py::object launched = py::str("not from there");
          if (convt::can_launch(problem, plan, pointers)) {
            try {
              launched = launches_of(problem, plan, pointers);
            } catch (const std::exception& error) {
              launched = py::str(error.what());
            }
          }
          const auto* tile = plan.tile.get_if<convt::PortableTile>();
          result.append(py::make_tuple(head_of(plan), launched, tile != nullptr && tile->splits > 1));
        }
        return result;
      },
      py::arg("problem"), py::arg("device"), py::arg("offset") = 0, py::arg("is_packed") = false);
}
