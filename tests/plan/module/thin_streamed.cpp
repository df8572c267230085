// Layout of the streamed engine's streamed sources.
#include "module/values.h"
#include "streamed/instances.h"
#include "streamed/layout.h"

// Returns the kernel parameters, or None for an illegal plan.
static py::object thin_streamed_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ConvTProblem asked = problem_of(problem);
  const convt::ThinStreamedTile tile{field<int32_t>(plan, "instance"), field<int32_t>(plan, "warps_channels"),
                                     field<int32_t>(plan, "warps_positions")};
  convt::ThinStreamedLayout layout;
  if (!convt::make_thin_streamed_layout(asked, tile, &layout)) return py::none();
  py::dict result = dict_of(asked, layout);
  add_tiles_of(layout, result);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(warps_channels), CONVT_FIELD(warps_positions), CONVT_FIELD(weight_pitch), CONVT_FIELD(weights_begin);
  CONVT_FIELD(threads), CONVT_FIELD(shared_bytes);
#undef CONVT_FIELD
  result["padding"] = convt::kStreamedPadding;
  return std::move(result);
}

// Channels and positions per thread, and the maximum number of taps of a vector kernel or 0.
static py::list thin_streamed_instances() {
  py::list result;
  for (const convt::ThinStreamedInstance& instance : convt::kThinStreamedInstances) {
    result.append(py::dict(py::arg("name") = instance.name, py::arg("channels") = instance.channels,
                           py::arg("positions") = instance.positions, py::arg("taps") = instance.taps,
                           py::arg("direction") = static_cast<int32_t>(instance.direction)));
  }
  return result;
}

void add_thin_streamed(py::module_& module) {
  module.def("thin_streamed_layout", &thin_streamed_layout);
  module.def("thin_streamed_instances", &thin_streamed_instances);
}
