// `_plan`: the planner's inside for pytest. Built by tests/plan/build.py from kernels/problem and
// kernels/plan with a host compiler alone, which also proves that they need neither torch nor CUDA.
// Called by: tests/plan. Never shipped: pybind11 cannot make an abi3 extension.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/cache.h"
#include "plan/device.h"
#include "plan/grad_weight.h"
#include "plan/instances.h"
#include "plan/plan.h"
#include "plan/shared_layout.h"
#include "plan/tap_program.h"
#include "plan/thin_depthwise.h"
#include "plan/thin_grad_input.h"
#include "plan/thin_instances.h"
#include "plan/thin_layout.h"
#include "plan/tile.h"
#include "plan/wgmma.h"
#include "problem/adjoint.h"
#include "problem/fuse.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace py = pybind11;

namespace {

template <typename T>
T field(const py::dict& values, const char* key) {
  if (!values.contains(key)) throw py::key_error(key);
  return values[key].cast<T>();
}

convt::Axis axis_of(const py::dict& values) {
  return convt::Axis{field<int32_t>(values, "in"),
                     field<int32_t>(values, "out"),
                     field<int32_t>(values, "kernel"),
                     field<int32_t>(values, "stride"),
                     field<int32_t>(values, "padding"),
                     field<int32_t>(values, "dilation"),
                     values.contains("position_step") ? field<int32_t>(values, "position_step") : 1};
}

void fill_strides(const py::dict& values, const char* key, int64_t (&strides)[4]) {
  const auto list = field<std::array<int64_t, 4>>(values, key);
  for (size_t i = 0; i < list.size(); ++i) strides[i] = list[i];
}

convt::ConvTProblem problem_of(const py::dict& values) {
  convt::ConvTProblem problem{};
  problem.direction = static_cast<convt::Direction>(field<int32_t>(values, "direction"));
  problem.batch = field<int64_t>(values, "batch");
  problem.c_in = field<int64_t>(values, "c_in");
  problem.c_out = field<int64_t>(values, "c_out");
  problem.groups = field<int64_t>(values, "groups");
  problem.h = axis_of(field<py::dict>(values, "h"));
  problem.w = axis_of(field<py::dict>(values, "w"));
  problem.dtype = static_cast<convt::DataType>(field<int32_t>(values, "dtype"));
  problem.precision = static_cast<convt::Precision>(field<int32_t>(values, "precision"));
  problem.has_bias = field<bool>(values, "has_bias");
  fill_strides(values, "x_stride", problem.x_stride);
  fill_strides(values, "w_stride", problem.w_stride);
  fill_strides(values, "y_stride", problem.y_stride);
  return problem;
}

// The six numbers of the op `convt_ext::plan`, in its units.
convt::DeviceInfo device_of(const std::array<int64_t, 6>& numbers) {
  auto narrow = [&numbers](size_t index) { return static_cast<int32_t>(numbers[index]); };
  return convt::DeviceInfo{narrow(0), narrow(1),         narrow(2),
                           narrow(3), numbers[4] * 1e-3, static_cast<double>(numbers[5])};
}

convt::TileShape shape_of(const py::dict& values) {
  return convt::TileShape{field<int32_t>(values, "block_co"), field<int32_t>(values, "tile_n"),
                          field<int32_t>(values, "tile_h"), field<int32_t>(values, "tile_w"),
                          field<int32_t>(values, "phases_w")};
}

convt::SimtPlan plan_of(const py::dict& values) {
  convt::SimtPlan plan{};
  plan.instance = field<int32_t>(values, "instance");
  plan.block_co = field<int32_t>(values, "block_co");
  plan.tile_n = field<int32_t>(values, "tile_n");
  plan.tile_h = field<int32_t>(values, "tile_h");
  plan.tile_w = field<int32_t>(values, "tile_w");
  plan.fused_w = field<int32_t>(values, "fused_w");
  plan.phases_w = field<int32_t>(values, "phases_w");
  plan.chunk_ci = field<int32_t>(values, "chunk_ci");
  plan.chunk_kh = field<int32_t>(values, "chunk_kh");
  plan.chunk_kw = field<int32_t>(values, "chunk_kw");
  plan.stages = field<int32_t>(values, "stages");
  return plan;
}

py::dict dict_of(const convt::Window& window) {
  return py::dict(py::arg("step") = window.step, py::arg("position_step") = window.position_step,
                  py::arg("extent") = window.extent, py::arg("unit") = window.unit, py::arg("copies") = window.copies);
}

py::dict dict_of(const convt::Phase& phase) {
  return py::dict(py::arg("num_taps") = phase.num_taps, py::arg("first_tap") = phase.first_tap,
                  py::arg("tap_step") = phase.tap_step, py::arg("first_shift") = phase.first_shift,
                  py::arg("shift_step") = phase.shift_step);
}

py::dict dict_of(const convt::Axis& axis) {
  py::dict result(py::arg("in") = axis.in, py::arg("out") = axis.out, py::arg("kernel") = axis.kernel,
                  py::arg("stride") = axis.stride, py::arg("padding") = axis.padding,
                  py::arg("dilation") = axis.dilation);
  if (axis.position_step != 1) result["position_step"] = axis.position_step;
  return result;
}

std::array<int64_t, 4> list_of(const int64_t (&strides)[4]) { return {strides[0], strides[1], strides[2], strides[3]}; }

py::dict dict_of(const convt::ConvTProblem& problem) {
  return py::dict(py::arg("direction") = static_cast<int>(problem.direction), py::arg("batch") = problem.batch,
                  py::arg("c_in") = problem.c_in, py::arg("c_out") = problem.c_out, py::arg("groups") = problem.groups,
                  py::arg("h") = dict_of(problem.h), py::arg("w") = dict_of(problem.w),
                  py::arg("dtype") = static_cast<int>(problem.dtype),
                  py::arg("precision") = static_cast<int>(problem.precision), py::arg("has_bias") = problem.has_bias,
                  py::arg("x_stride") = list_of(problem.x_stride), py::arg("w_stride") = list_of(problem.w_stride),
                  py::arg("y_stride") = list_of(problem.y_stride));
}

py::dict dict_of(const convt::Instance& instance) {
  return py::dict(py::arg("name") = instance.name, py::arg("dtype") = static_cast<int>(instance.dtype),
                  py::arg("precision") = static_cast<int>(instance.precision),
                  py::arg("direction") = static_cast<int>(instance.direction),
                  py::arg("thread_co") = instance.thread_co, py::arg("quads") = instance.quads);
}

convt::ThinPlan thin_plan_of(const py::dict& values) {
  auto number = [&values](const char* key) { return field<int32_t>(values, key); };
  return convt::ThinPlan{number("instance"),
                         number("tile_h"),
                         number("tile_w"),
                         number("tiles_per_block"),
                         number("block_co"),
                         number("block_groups"),
                         field<bool>(values, "split_phases"),
                         number("chunk_ci")};
}

py::dict dict_of(const convt::ThinAxis& axis) {
  py::list taps;
  for (int32_t t = 0; t < axis.num_taps; ++t) {
    py::list weight_taps;
    for (int32_t phase = 0; phase < axis.out_stride; ++phase) weight_taps.append(convt::thin_tap(axis, t, phase));
    taps.append(py::make_tuple(axis.offset[t], weight_taps));
  }
  return py::dict(py::arg("in") = axis.in, py::arg("out") = axis.out, py::arg("first") = axis.first,
                  py::arg("positions") = axis.positions, py::arg("in_stride") = axis.in_stride,
                  py::arg("out_stride") = axis.out_stride, py::arg("out_origin") = axis.out_origin,
                  py::arg("filled") = axis.filled, py::arg("taps") = taps);
}

// What the kernel is launched with, or None for an illegal plan.
py::object thin_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ThinPlan tile = thin_plan_of(plan);
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
  CONVT_FIELD(row_offset), CONVT_FIELD(column_offset), CONVT_FIELD(pitch), CONVT_FIELD(plane), CONVT_FIELD(plane_row);
  CONVT_FIELD(channel_pitch), CONVT_FIELD(vector_bytes), CONVT_FIELD(needed_rows), CONVT_FIELD(needed_columns);
  CONVT_FIELD(stage_channel), CONVT_FIELD(stage_row), CONVT_FIELD(stage_phase), CONVT_FIELD(stage_column);
  CONVT_FIELD(store_vector), CONVT_FIELD(channels_last_result), CONVT_FIELD(weight_begin), CONVT_FIELD(chunk_ci);
  CONVT_FIELD(threads), CONVT_FIELD(shared_bytes), CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  result["positions"] = instance.positions;
  return result;
}

convt::ThinGradInputPlan thin_grad_input_plan_of(const py::dict& values) {
  auto number = [&values](const char* key) { return field<int32_t>(values, key); };
  return convt::ThinGradInputPlan{number("instance"), number("tile_h"),         number("tile_w"),
                                  number("block_ci"), number("block_groups"),   number("chunk_co"),
                                  number("stages"),   number("tiles_per_block")};
}

// The same for the gradient of the input.
py::object thin_grad_input_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ThinGradInputPlan tile = thin_grad_input_plan_of(plan);
  const convt::ConvTProblem asked = problem_of(problem);
  convt::ThinGradInputLayout layout;
  if (!convt::make_thin_grad_input_layout(asked, tile, &layout)) return py::none();
  const convt::ThinPitches pitches = convt::make_thin_pitches(layout, asked);
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

// Warps of a depthwise plan, or None for an illegal one.
py::object thin_depthwise_layout(const py::dict& problem, const py::dict& plan) {
  const convt::ThinDepthwiseInstance& instance = convt::kThinDepthwiseInstances[field<int32_t>(plan, "instance")];
  convt::ThinDepthwiseLayout layout;
  if (!convt::make_thin_depthwise_layout(problem_of(problem), instance, field<int32_t>(plan, "rows"), &layout)) {
    return py::none();
  }
  return py::dict(py::arg("kernel") = instance.kernel, py::arg("stride") = instance.stride,
                  py::arg("rows") = layout.rows, py::arg("chunks") = layout.chunks, py::arg("strips") = layout.strips,
                  py::arg("channels") = layout.channels, py::arg("num_warps") = layout.num_warps,
                  py::arg("num_blocks") = layout.num_blocks);
}

py::dict dict_of(const convt::Plan& plan) {
  py::dict result(py::arg("engine") = convt::name_of(plan.engine), py::arg("kernel") = plan.kernel,
                  py::arg("threads") = plan.threads, py::arg("shared_bytes") = plan.shared_bytes,
                  py::arg("num_blocks") = plan.num_blocks, py::arg("workspace_bytes") = plan.workspace_bytes,
                  py::arg("compute_us") = plan.compute_us, py::arg("memory_us") = plan.memory_us,
                  py::arg("estimate_us") = plan.estimate_us);
  if (plan.thin_depthwise.rows > 0) {
    result["instance"] = plan.thin_depthwise.instance, result["rows"] = plan.thin_depthwise.rows;
    return result;
  }
  if (plan.thin_grad_input.tile_h > 0) {
    const convt::ThinGradInputPlan& tile = plan.thin_grad_input;
    result["instance"] = tile.instance, result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w;
    result["block_ci"] = tile.block_ci, result["block_groups"] = tile.block_groups;
    result["chunk_co"] = tile.chunk_co, result["stages"] = tile.stages;
    result["tiles_per_block"] = tile.tiles_per_block;
    return result;
  }
  if (plan.engine == convt::Engine::kThin) {
    const convt::ThinPlan& tile = plan.thin;
    result["instance"] = tile.instance, result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w;
    result["tiles_per_block"] = tile.tiles_per_block, result["block_co"] = tile.block_co;
    result["block_groups"] = tile.block_groups, result["split_phases"] = tile.split_phases;
    result["chunk_ci"] = tile.chunk_ci;
    return result;
  }
  if (plan.engine == convt::Engine::kWgmma) {
    const convt::WgmmaPlan& tile = plan.wgmma;
    result["instance"] = tile.instance, result["block_n"] = tile.block_n, result["blocks"] = tile.blocks;
    result["split_phases"] = tile.split_phases, result["shape"] = static_cast<int32_t>(tile.shape);
    result["tile_n"] = tile.tile_n, result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w;
    result["rows"] = tile.rows, result["pitch"] = tile.pitch;
    result["plane_positions"] = tile.plane_positions, result["num_tiles"] = tile.num_tiles;
    result["k_steps"] = tile.k_steps, result["num_chunks"] = tile.num_chunks;
    result["source_slots"] = tile.source_slots, result["weight_slots"] = tile.weight_slots;
    result["slot_taps"] = tile.slot_taps, result["tap_bytes"] = tile.tap_bytes, result["raw_bytes"] = tile.raw_bytes;
    result["raw_begin"] = tile.raw_begin, result["weights_begin"] = tile.weights_begin;
    result["staged_begin"] = tile.staged_begin, result["lists_begin"] = tile.lists_begin,
    result["barriers_begin"] = tile.barriers_begin;
    result["by_channels"] = tile.by_channels, result["raw_lines"] = tile.raw_lines;
    result["raw_pitch"] = tile.raw_pitch, result["raw_slots"] = tile.raw_slots;
    py::list origins;
    for (int32_t block = 0; block < tile.blocks; ++block) origins.append(convt::block_origin(tile, block));
    result["block_origin"] = origins, result["block_row_step"] = convt::block_row_step(tile);
    return result;
  }
  const convt::SimtPlan& tile = plan.simt;
  result["instance"] = tile.instance, result["block_co"] = tile.block_co, result["tile_n"] = tile.tile_n;
  result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w, result["fused_w"] = tile.fused_w;
  result["phases_w"] = tile.phases_w, result["chunk_ci"] = tile.chunk_ci, result["chunk_kh"] = tile.chunk_kh;
  result["chunk_kw"] = tile.chunk_kw, result["stages"] = tile.stages;
  return result;
}

py::dict dict_of(const convt::TileGrid& grid) {
  return py::dict(py::arg("co_tiles") = grid.co_tiles, py::arg("w_tiles") = grid.w_tiles,
                  py::arg("w_splits") = grid.w_splits, py::arg("h_phases") = grid.h_phases,
                  py::arg("h_tiles") = grid.h_tiles, py::arg("groups") = grid.groups, py::arg("n_tiles") = grid.n_tiles,
                  py::arg("w_phases") = grid.w_phases, py::arg("w_origin") = grid.w_origin);
}

py::dict dict_of(const convt::Tile& tile) {
  return py::dict(py::arg("n_begin") = tile.n_begin, py::arg("group") = tile.group, py::arg("co_begin") = tile.co_begin,
                  py::arg("phase_h") = tile.phase_h, py::arg("p_h_begin") = tile.p_h_begin,
                  py::arg("phase_w_begin") = tile.phase_w_begin, py::arg("num_phases_w") = tile.num_phases_w,
                  py::arg("p_w_begin") = tile.p_w_begin);
}

py::dict dict_of(const convt::GradWeightPlan& plan) {
  return py::dict(py::arg("instance") = plan.instance, py::arg("block_ci") = plan.block_ci,
                  py::arg("block_co") = plan.block_co, py::arg("block_kh") = plan.block_kh,
                  py::arg("block_runs") = plan.block_runs, py::arg("splits") = plan.splits,
                  py::arg("tile_h") = plan.tile_h, py::arg("tile_w_log2") = plan.tile_w_log2,
                  py::arg("tiles_per_chunk") = plan.tiles_per_chunk);
}

convt::GradWeightPlan grad_weight_plan_of(const py::dict& values) {
  auto number = [&values](const char* key) { return field<int32_t>(values, key); };
  return convt::GradWeightPlan{number("instance"), number("block_ci"),    number("block_co"),
                               number("block_kh"), number("block_runs"),  number("splits"),
                               number("tile_h"),   number("tile_w_log2"), field<int64_t>(values, "tiles_per_chunk")};
}

py::dict dict_of(const convt::GradWeightGrid& grid) {
  return py::dict(py::arg("chunks") = grid.chunks, py::arg("h_tiles") = grid.h_tiles, py::arg("w_tiles") = grid.w_tiles,
                  py::arg("pixel_tiles") = grid.pixel_tiles, py::arg("num_blocks") = convt::num_blocks(grid));
}

py::dict dict_of(const convt::GradWeightTile& tile) {
  return py::dict(py::arg("run_begin") = tile.run_begin, py::arg("kh_begin") = tile.kh_begin,
                  py::arg("co_begin") = tile.co_begin, py::arg("ci_begin") = tile.ci_begin,
                  py::arg("group") = tile.group, py::arg("chunk") = tile.chunk);
}

py::dict dict_of(const convt::GradWeightInstance& instance) {
  return py::dict(py::arg("name") = instance.name, py::arg("dtype") = static_cast<int>(instance.dtype),
                  py::arg("thread_ci") = instance.thread_ci, py::arg("thread_co") = instance.thread_co,
                  py::arg("thread_kw") = instance.thread_kw);
}

py::list list_of(const std::vector<convt::Plan>& plans, convt::Direction direction) {
  py::list result;
  for (const convt::Plan& plan : plans) {
    py::dict entry = dict_of(plan);
    if (direction == convt::Direction::kGradWeight) entry["grad_weight"] = dict_of(plan.grad_weight);
    result.append(entry);
  }
  return result;
}

// Here and below `problem` is what the tiles are tiles of: the fused one of a plan that fuses.
convt::TileGrid grid_of(const py::dict& problem, const py::dict& shape) {
  return convt::make_tile_grid(problem_of(problem), shape_of(shape));
}

// Every tile of a problem in one call, for speed: [num_tiles, 8], columns in the order of struct Tile.
py::array_t<int32_t> all_tiles(const py::dict& problem, const py::dict& shape_values) {
  const convt::TileShape shape = shape_of(shape_values);
  const convt::TileGrid grid = convt::make_tile_grid(problem_of(problem), shape);
  const int64_t count = convt::num_tiles(grid);
  py::array_t<int32_t> result({count, int64_t{8}});
  auto rows = result.mutable_unchecked<2>();
  for (int64_t block = 0; block < count; ++block) {
    const convt::Tile tile = convt::tile_of_block(grid, shape, static_cast<uint32_t>(block));
    const int32_t row[8] = {tile.n_begin,   tile.group,         tile.co_begin,     tile.phase_h,
                            tile.p_h_begin, tile.phase_w_begin, tile.num_phases_w, tile.p_w_begin};
    for (int64_t column = 0; column < 8; ++column) rows(block, column) = row[column];
  }
  return result;
}

py::dict dict_of(const convt::TapRun& run) {
  return py::dict(py::arg("kh") = run.kh, py::arg("kw") = run.kw, py::arg("kh_step") = run.kh_step,
                  py::arg("kw_step") = run.kw_step, py::arg("num_h") = run.num_h, py::arg("num_w") = run.num_w,
                  py::arg("row") = run.row, py::arg("column") = run.column, py::arg("row_step") = run.row_step,
                  py::arg("column_step") = run.column_step, py::arg("sub") = run.sub,
                  py::arg("first_tap") = run.first_tap);
}

// None where the tables are too small.
py::object tap_program(const py::dict& problem) {
  convt::TapProgram program;
  if (!convt::make_tap_program(problem_of(problem), &program)) return py::none();
  auto windows = [](const convt::AxisWindow* axis, int32_t count) {
    py::list result;
    for (int32_t i = 0; i < count; ++i) {
      result.append(py::dict(py::arg("shift") = axis[i].shift, py::arg("residue") = axis[i].residue));
    }
    return result;
  };
  py::list runs, taps_before;
  for (int32_t i = 0; i < program.num_runs; ++i) runs.append(dict_of(program.runs[i]));
  for (int32_t i = 0; i < program.phases_h; ++i) taps_before.append(program.taps_before[i]);
  return py::dict(py::arg("source_step_h") = program.source_step_h, py::arg("source_step_w") = program.source_step_w,
                  py::arg("phases_w") = program.phases_w, py::arg("sub_h") = program.sub_h,
                  py::arg("sub_w") = program.sub_w,
                  py::arg("window_h") = windows(program.window_h, program.phases_h * program.sub_h),
                  py::arg("window_w") = windows(program.window_w, program.phases_w * program.sub_w),
                  py::arg("extra_h") = program.extra_h, py::arg("extra_w") = program.extra_w, py::arg("runs") = runs,
                  py::arg("taps_before") = taps_before, py::arg("total_taps") = program.total_taps);
}

py::list instances() {
  py::list result;
  for (const convt::Instance& instance : convt::kInstances) result.append(dict_of(instance));
  return result;
}

}  // namespace

PYBIND11_MODULE(_plan, module) {
  module.doc() = "The planner of convt_ext, for its tests.";
  module.def("num_positions",
             [](const py::dict& axis, int32_t phase) { return convt::num_positions(axis_of(axis), phase); });
  module.def("make_phase",
             [](const py::dict& axis, int32_t phase) { return dict_of(convt::make_phase(axis_of(axis), phase)); });
  module.def("max_taps", [](const py::dict& axis) { return convt::max_taps(axis_of(axis)); });
  module.def("fits_axis", [](const py::dict& axis) {
    auto size = [&axis](const char* key) { return field<int64_t>(axis, key); };
    return convt::fits_axis(size("in"), size("out"), size("kernel"), size("stride"), size("padding"), size("dilation"));
  });
  module.def("can_fuse_phases", [](const py::dict& problem) { return convt::can_fuse_phases(problem_of(problem)); });
  module.def("fuse_phases", [](const py::dict& problem) { return dict_of(convt::fuse_phases(problem_of(problem))); });
  module.def("row_window", [](int32_t num_taps, int32_t shift_step, int32_t position_step, int32_t tile_h) {
    return dict_of(convt::row_window(num_taps, shift_step, position_step, tile_h));
  });
  module.def("column_window", [](int32_t num_taps, int32_t shift_step, int32_t position_step, int32_t tile_w) {
    return dict_of(convt::column_window(num_taps, shift_step, position_step, tile_w));
  });
  module.def("adjoint_problem",
             [](const py::dict& problem) { return dict_of(convt::adjoint_problem(problem_of(problem))); });
  module.def("input_pitch", &convt::input_pitch);
  module.def("input_plane", &convt::input_plane);
  module.def("weight_plane", &convt::weight_plane);
  module.def("shared_layout", [](const py::dict& problem, const py::dict& plan) {
    convt::SharedLayout layout{};
    const int64_t bytes = convt::make_shared_layout(problem_of(problem), plan_of(plan), &layout);
    return py::dict(py::arg("bytes") = bytes, py::arg("stage_elems") = layout.stage_elems,
                    py::arg("weight_elems") = layout.weight_elems,
                    py::arg("staged_bytes_begin") = layout.staged_bytes_begin,
                    py::arg("channel_stride") = layout.channel_stride, py::arg("column_stride") = layout.column_stride,
                    py::arg("total_bytes") = layout.total_bytes);
  });
  module.def("tap_program", &tap_program);
  module.attr("max_phases_w") = convt::kMaxPhasesW;
  module.attr("max_stages") = convt::kMaxStages;
  module.def("instances", &instances);
  module.def("grad_weight_instances", [] {
    py::list result;
    for (const convt::GradWeightInstance& instance : convt::kGradWeightInstances) result.append(dict_of(instance));
    return result;
  });
  module.def("grad_weight_grid", [](const py::dict& problem, const py::dict& plan) {
    return dict_of(convt::make_grad_weight_grid(problem_of(problem), grad_weight_plan_of(plan)));
  });
  module.def("grad_weight_tile", [](const py::dict& problem, const py::dict& plan_values, uint32_t block) {
    const convt::GradWeightPlan plan = grad_weight_plan_of(plan_values);
    return dict_of(convt::grad_weight_tile(convt::make_grad_weight_grid(problem_of(problem), plan), plan, block));
  });
  module.def("grad_weight_layout", [](const py::dict& problem, const py::dict& plan) {
    convt::GradWeightLayout layout{};
    const int64_t bytes = convt::make_grad_weight_layout(problem_of(problem), grad_weight_plan_of(plan), &layout);
    return py::dict(py::arg("bytes") = bytes, py::arg("rows") = dict_of(layout.rows),
                    py::arg("columns") = dict_of(layout.columns), py::arg("ci_pitch") = layout.ci_pitch,
                    py::arg("co_pitch") = layout.co_pitch, py::arg("output_elems") = layout.output_elems,
                    py::arg("stage_elems") = layout.stage_elems,
                    py::arg("places_bytes_begin") = layout.places_bytes_begin);
  });
  module.def("thin_layout", &thin_layout);
  module.def("thin_grad_input_layout", &thin_grad_input_layout);
  module.def("thin_depthwise_layout", &thin_depthwise_layout);
  module.def("candidates", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    const convt::ConvTProblem asked = problem_of(problem);
    return list_of(convt::candidate_plans(asked, device_of(device)), asked.direction);
  });
  module.def("choose", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return dict_of(convt::choose_plan(problem_of(problem), device_of(device)));
  });
  module.def("cached", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    const convt::ConvTProblem asked = problem_of(problem);
    return list_of(*convt::cached_plans(asked, device_of(device)), asked.direction);
  });
  module.def("tile_grid",
             [](const py::dict& problem, const py::dict& shape) { return dict_of(grid_of(problem, shape)); });
  module.def("num_tiles",
             [](const py::dict& problem, const py::dict& shape) { return convt::num_tiles(grid_of(problem, shape)); });
  module.def("tile_of_block", [](const py::dict& problem, const py::dict& shape, uint32_t block) {
    return dict_of(convt::tile_of_block(grid_of(problem, shape), shape_of(shape), block));
  });
  module.def("all_tiles", &all_tiles);
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
