// `_emulated`: runs plans of all engines on the host, with the engines' launchers and kernels. Built by
// tests/plan/build.py with CUDA's headers and without its libraries. Called by: tests/emulator.
#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulator/asynchronous.h"
#include "emulator/emulator.h"
#include "families/launch.h"
#include "launch/kernel.h"
#include "module/values.h"
#include "plan/family.h"

namespace convt {

// Replaces launch/kernel.cpp: a launch has completed when it returns.
void launch_kernel(const void* kernel, const Grid& grid, cudaStream_t,
                   std::initializer_list<KernelArgument> arguments) {
  if (grid.cluster > 1) throw std::runtime_error("emulator: CTAs run one after the other, and make no clusters");
  std::vector<const void*> addresses;
  for (const KernelArgument& argument : arguments) addresses.push_back(argument.data);
  emulator::launch(kernel, grid.blocks, static_cast<int>(grid.threads.x), grid.shared_bytes, addresses.data());
}

void fill_zero(void* memory, int64_t bytes, const char*, cudaStream_t) { memset(memory, 0, bytes); }

}  // namespace convt

namespace {

// The candidates of an engine's families, in the order of families().
convt::Candidates plans_of(const convt::ConvTProblem& problem, const convt::DeviceInfo& device,
                           const std::string& engine) {
  convt::Candidates plans;
  for (const convt::Family& family : convt::families()) {
    if (engine != family.engine || !family.serves(problem, device)) continue;
    const size_t first = plans.size();
    family.add(problem, device, &plans);
    for (size_t i = first; i < plans.size(); ++i) plans[i].family = &family;
  }
  return plans;
}

void* address(uintptr_t number) { return reinterpret_cast<void*>(number); }

// Sets the number of images per launch.
template <typename Problem, typename Tile, typename Layout>
void set_images(const Problem& problem, int32_t images, bool (*make)(const Problem&, const Tile&, Layout*),
                convt::Plan* plan) {
  Layout layout;
  auto& tile = convt::tile_of<Tile>(*plan);
  tile.images = images;
  if (!make(problem, tile, &layout)) throw py::value_error("the plan is not legal with so many images a launch");
  convt::set_launch(layout, plan);
}

// An epilogue: y * per-channel scales + a tensor of the result's shape, then a clamp.
convt::epilogue::Program program_of(const py::dict& steps) {
  convt::epilogue::Program program{};
  program.num_steps = 3;
  program.scale = program.last_scale = 1;
  program.shift = program.last_shift = -0.0f;
  program.parts = convt::epilogue::kTensorsPart | convt::epilogue::kClampPart;
  program.tensors.scales = address(field<uintptr_t>(steps, "scales"));
  program.tensors.results = address(field<uintptr_t>(steps, "results"));
  program.tensors.flags = convt::epilogue::kScalesStep | convt::epilogue::kByVectors;  // tensors are 64-byte aligned
  program.low = field<float>(steps, "low");
  program.high = field<float>(steps, "high");
  return program;
}

// Runs plan `number` of plans_of() with a poisoned workspace. `images`: images per launch, or 0 for the plan's number.
// `tensors` contains addresses; the bias may be 0.
void run(const convt::ConvTProblem& problem, const convt::DeviceInfo& device, const std::string& engine, size_t number,
         const std::array<uintptr_t, 4>& tensors, int32_t images, const convt::epilogue::Program* steps) {
  convt::Plan plan = plans_of(problem, device, engine).at(number);
  emulator::may_conflict = engine != "portable";
  emulator::keeps_float_sums =
      problem.precision != convt::Precision::kIeee && problem.precision != convt::Precision::kAten;
  if (images > 0 && engine == "correlate_sm90a") {
    convt::JoinedProblem joined;
    convt::join_planes(problem, &joined);
    set_images(joined, images, &convt::make_correlate_layout, &plan);
  } else if (images > 0 && problem.direction == convt::Direction::kGradWeight) {
    convt::tile_of<convt::PortableGradWeightTile>(plan).chunks = 1;
    set_images(problem, images, &convt::make_portable_grad_weight_layout, &plan);
    plan.workspace_bytes *= problem.batch;  // one more slab per launch
  } else if (images > 0) {
    set_images(problem, images, &convt::make_portable_layout, &plan);
  }
  constexpr int64_t kGuardBytes = 4096;  // after the workspace; no kernel may write there
  std::vector<unsigned char> workspace(plan.workspace_bytes + 256 + kGuardBytes, 0xff);
  auto* begin = address((reinterpret_cast<uintptr_t>(workspace.data()) + 255) / 256 * 256);
  convt::Pointers pointers{};
  pointers.x = address(tensors[0]);
  pointers.w = address(tensors[1]);
  if (problem.direction != convt::Direction::kGradWeight) {
    pointers.bias = address(tensors[2]);
  } else if (plan.gives_grad_bias) {
    pointers.grad_bias = address(tensors[2]);
  }
  pointers.y = address(tensors[3]);
  pointers.packed = begin;
  pointers.steps = steps;
  pointers.workspace = static_cast<unsigned char*>(begin) + plan.packed_bytes;
  convt::launcher_of (*plan.family)(problem, plan, pointers, nullptr);
  const auto guard =
      workspace.cbegin() + (static_cast<unsigned char*>(begin) - workspace.data()) + plan.workspace_bytes;
  if (std::any_of(guard, workspace.cend(), [](unsigned char byte) { return byte != 0xff; }))
    throw std::runtime_error("emulator: a kernel has written beyond its workspace");
}

}  // namespace

PYBIND11_MODULE(_emulated, module) {
  module.doc() = "Kernels of convt_ext on the host, for their tests.";
  module.def("set_eager", [](bool copies, bool products) {
    emulator::copies_are_eager = copies;
    emulator::products_are_eager = products;
  });
  module.def("plans", [](const py::dict& problem, const std::array<int64_t, 6>& device, const std::string& engine) {
    py::list names;
    for (const convt::Plan& plan : plans_of(problem_of(problem), device_of(device), engine)) {
      py::dict tile;
      convt::visit_fields(plan.tile, [&tile](std::string_view name, auto value) { tile[py::str(name)] = value; });
      tile["gives_grad_bias"] = plan.gives_grad_bias;
      names.append(py::make_tuple(plan.kernel, tile, plan.source_on_vectors, plan.result_on_vectors));
    }
    return names;
  });
  module.def("run", [](const py::dict& problem, const std::array<int64_t, 6>& device, const std::string& engine,
                       size_t number, const std::array<uintptr_t, 4>& tensors, int32_t images,
                       const py::object& asked) {
    convt::epilogue::Program steps{};
    if (!asked.is_none()) steps = program_of(asked);
    run(problem_of(problem), device_of(device), engine, number, tensors, images, asked.is_none() ? nullptr : &steps);
  });
}
