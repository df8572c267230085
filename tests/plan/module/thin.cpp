// Layouts of the thin and depthwise engines.
#include <vector>

#include "depthwise/channels_last_layout.h"
#include "depthwise/layout.h"
#include "module/values.h"
#include "thin/grad_input_layout.h"
#include "thin/grad_weight_layout.h"
#include "thin/instances.h"
#include "thin/layout.h"

static convt::ThinTile thin_plan_of(const py::dict& values) {
  auto number = [&values](const char* key) { return field<int32_t>(values, key); };
  return convt::ThinTile{number("instance"),
                         number("tile_h"),
                         number("tile_w"),
                         number("tiles_per_block"),
                         number("block_co"),
                         number("block_groups"),
                         field<bool>(values, "split_phases"),
                         number("chunk_ci")};
}

static py::dict dict_of(const convt::PhaseAxis& axis) {
  py::list taps;
  for (int32_t t = 0; t < axis.num_taps; ++t) {
    py::list weight_taps;
    for (int32_t phase = 0; phase < axis.out_stride; ++phase) weight_taps.append(convt::weight_tap(axis, t, phase));
    taps.append(py::make_tuple(axis.offset[t], weight_taps));
  }
  return py::dict(py::arg("in") = axis.in, py::arg("out") = axis.out, py::arg("first") = axis.first,
                  py::arg("positions") = axis.positions, py::arg("out_stride") = axis.out_stride,
                  py::arg("out_origin") = axis.out_origin, py::arg("filled") = axis.filled, py::arg("taps") = taps);
}

// Returns the kernel parameters, or None for an illegal plan.
static py::object thin_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ThinTile tile = thin_plan_of(plan);
  const convt::ThinInstance& instance = convt::kThinInstances[tile.instance];
  convt::ThinLayout layout;
  if (!convt::make_thin_layout(problem_of(problem), tile, instance.outputs, instance.positions, &layout)) {
    return py::none();
  }
  py::dict result;
  result["h"] = dict_of(layout.h), result["w"] = dict_of(layout.w);
  auto list = [](const int32_t* values, int32_t count) { return std::vector<int32_t>(values, values + count); };
  result["tap_row"] = list(layout.tap_row, layout.h.num_taps);
  result["tap_column"] = list(layout.tap_column, layout.w.num_taps);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(groups), CONVT_FIELD(group_ci), CONVT_FIELD(group_co), CONVT_FIELD(num_tiles), CONVT_FIELD(tiles_h);
  CONVT_FIELD(tiles_w), CONVT_FIELD(tile_h), CONVT_FIELD(tile_w), CONVT_FIELD(tiles_per_block), CONVT_FIELD(passes);
  CONVT_FIELD(phase_splits), CONVT_FIELD(co_tiles), CONVT_FIELD(block_co), CONVT_FIELD(block_groups);
  CONVT_FIELD(warps_w), CONVT_FIELD(output_blocks), CONVT_FIELD(outputs), CONVT_FIELD(rows), CONVT_FIELD(columns);
  CONVT_FIELD(row_offset), CONVT_FIELD(column_offset), CONVT_FIELD(pitch), CONVT_FIELD(channel_pitch),
      CONVT_FIELD(vector_bytes);
  CONVT_FIELD(stage_channel), CONVT_FIELD(stage_row), CONVT_FIELD(stage_phase), CONVT_FIELD(stage_column);
  CONVT_FIELD(store_vector), CONVT_FIELD(channels_last_result), CONVT_FIELD(weight_begin), CONVT_FIELD(chunk_ci);
  CONVT_FIELD(step_begin), CONVT_FIELD(quad_begin), CONVT_FIELD(taps);
  CONVT_FIELD(threads), CONVT_FIELD(shared_bytes), CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  result["positions"] = instance.positions;
  return result;
}

static convt::ThinGradInputTile thin_grad_input_plan_of(const py::dict& values) {
  auto number = [&values](const char* key) { return field<int32_t>(values, key); };
  return convt::ThinGradInputTile{number("instance"), number("tile_h"),         number("tile_w"),
                                  number("block_ci"), number("block_groups"),   number("chunk_co"),
                                  number("stages"),   number("tiles_per_block")};
}

// Layout of the gradient of the input.
static py::object thin_grad_input_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ThinGradInputTile tile = thin_grad_input_plan_of(plan);
  const convt::ConvTProblem asked = problem_of(problem);
  convt::ThinGradInputLayout layout;
  if (!convt::make_thin_grad_input_layout(asked, tile, &layout)) return py::none();
  const convt::SlotPitches pitches = convt::make_slot_pitches(layout, asked, layout.tile_h, layout.h.kernel);
  py::dict result(py::arg("slot") = pitches.slot, py::arg("position") = pitches.position, py::arg("tap") = pitches.tap,
                  py::arg("channel") = pitches.channel);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(groups), CONVT_FIELD(group_ci), CONVT_FIELD(group_co), CONVT_FIELD(num_tiles), CONVT_FIELD(tiles_h);
  CONVT_FIELD(tiles_w), CONVT_FIELD(tile_h), CONVT_FIELD(tile_w), CONVT_FIELD(tiles_per_block), CONVT_FIELD(passes);
  CONVT_FIELD(ci_tiles), CONVT_FIELD(block_ci), CONVT_FIELD(block_groups), CONVT_FIELD(warps_w), CONVT_FIELD(warps_ci);
  CONVT_FIELD(chunk_co), CONVT_FIELD(chunks), CONVT_FIELD(stages), CONVT_FIELD(slots), CONVT_FIELD(apart);
  CONVT_FIELD(slot_q), CONVT_FIELD(slot_k), CONVT_FIELD(row_step), CONVT_FIELD(columns), CONVT_FIELD(stage_begin);
  CONVT_FIELD(stage_bytes), CONVT_FIELD(threads), CONVT_FIELD(shared_bytes), CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  return result;
}

// Returns the warps of a depthwise plan, or None for an illegal plan.
static py::object thin_depthwise_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ThinDepthwiseInstance& instance = convt::kThinDepthwiseInstances[field<int32_t>(plan, "instance")];
  convt::ThinDepthwiseLayout layout;
  if (!convt::make_thin_depthwise_layout(problem_of(problem), instance, field<int32_t>(plan, "rows"), &layout)) {
    return py::none();
  }
  return py::dict(py::arg("kernel") = instance.kernel, py::arg("stride") = instance.stride,
                  py::arg("first_row") = layout.first_row, py::arg("num_rows") = layout.num_rows,
                  py::arg("rows") = layout.rows, py::arg("chunks") = layout.chunks, py::arg("strips") = layout.strips,
                  py::arg("channels") = layout.channels, py::arg("num_warps") = layout.num_warps,
                  py::arg("num_blocks") = layout.num_blocks);
}

// Returns the CTAs of a channels_last plan, or None for an illegal plan.
static py::object thin_channels_last_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ThinChannelsLastInstance& instance = convt::kThinChannelsLastInstances[field<int32_t>(plan, "instance")];
  convt::ThinChannelsLastLayout layout;
  if (!convt::make_thin_channels_last_layout(problem_of(problem), instance, field<int32_t>(plan, "rows"),
                                             field<int32_t>(plan, "vector"), &layout)) {
    return py::none();
  }
  auto range = [](const convt::PositionRange& positions) { return py::make_tuple(positions.first, positions.count); };
  py::dict result(py::arg("positions_h") = range(layout.positions_h),
                  py::arg("positions_w") = range(layout.positions_w));
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(channels), CONVT_FIELD(vector), CONVT_FIELD(lanes), CONVT_FIELD(channel_blocks), CONVT_FIELD(columns);
  CONVT_FIELD(column_blocks), CONVT_FIELD(rows), CONVT_FIELD(chunks), CONVT_FIELD(shared_bytes);
  CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
#define CONVT_FIELD(name) result[#name] = instance.name
  CONVT_FIELD(kernel), CONVT_FIELD(stride), CONVT_FIELD(positions);
#undef CONVT_FIELD
  return result;
}

// Layout of the gradient of the weight, with the instance's channels and taps.
static py::object thin_grad_weight_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::ThinGradWeightTile tile{number("strip"),      number("units_per_chunk"), number("instance"),
                                       number("block_ci"),   number("block_co"),        number("block_kh"),
                                       number("block_runs"), number("tile_units"),      number("stages")};
  const convt::ThinGradWeightInstance& instance = convt::kThinGradWeightInstances[tile.instance];
  const convt::ConvTProblem asked = problem_of(problem);
  convt::StripLayout layout;
  if (!convt::make_thin_grad_weight_layout(asked, tile, &layout)) return py::none();
  const convt::StripPitches pitches = convt::make_strip_pitches(layout, asked);
  py::dict result(py::arg("thread_ci") = instance.thread_ci, py::arg("thread_co") = instance.thread_co,
                  py::arg("thread_kw") = instance.thread_kw,
                  py::arg("merged_rows") = convt::has_merged_rows(layout, asked));
#define CONVT_FIELD(name) result[#name] = pitches.name
  CONVT_FIELD(x_row), CONVT_FIELD(x_channel), CONVT_FIELD(gy_slot), CONVT_FIELD(gy_position), CONVT_FIELD(gy_tap);
  CONVT_FIELD(gy_channel);
#undef CONVT_FIELD
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(groups), CONVT_FIELD(group_ci), CONVT_FIELD(group_co), CONVT_FIELD(strip), CONVT_FIELD(strips);
  CONVT_FIELD(unit_rows), CONVT_FIELD(units_of_strip), CONVT_FIELD(num_units), CONVT_FIELD(units_per_chunk);
  CONVT_FIELD(chunks), CONVT_FIELD(block_ci), CONVT_FIELD(block_co), CONVT_FIELD(block_kh), CONVT_FIELD(block_runs);
  CONVT_FIELD(run_tiles), CONVT_FIELD(kh_tiles), CONVT_FIELD(co_tiles), CONVT_FIELD(ci_tiles), CONVT_FIELD(passes);
  CONVT_FIELD(warps_ci), CONVT_FIELD(warps_co), CONVT_FIELD(threads), CONVT_FIELD(num_blocks);
  CONVT_FIELD(tile_units), CONVT_FIELD(stages), CONVT_FIELD(slots), CONVT_FIELD(apart), CONVT_FIELD(row_step);
  CONVT_FIELD(columns), CONVT_FIELD(gy_begin), CONVT_FIELD(stage_bytes), CONVT_FIELD(shared_bytes);
#undef CONVT_FIELD
  return result;
}

void add_thin(py::module_& module) {
  module.def("thin_layout", &thin_layout);
  module.def("thin_grad_input_layout", &thin_grad_input_layout);
  module.def("thin_grad_weight_layout", &thin_grad_weight_layout);
  module.attr("num_thin_grad_weight_instances") = convt::kNumThinGradWeightInstances;
  module.def("thin_depthwise_layout", &thin_depthwise_layout);
  module.def("thin_channels_last_layout", &thin_channels_last_layout);
}
