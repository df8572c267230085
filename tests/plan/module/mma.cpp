// Layouts of the mma engine.
#include <vector>

#include "mma_sm90a/grad_input_layout.h"
#include "mma_sm90a/grad_weight_layout.h"
#include "mma_sm90a/rows_layout.h"
#include "module/values.h"

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

// Layout of whole-row tiles, and (channel, H phase, W phase, taps along H, along W) for each column.
static py::object mma_rows_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::MmaRowsTile tile{number("instance"),
                                number("warps"),
                                number("tile_h"),
                                number("block_co"),
                                number("slots"),
                                number("padding"),
                                field<bool>(plan, "interleaved"),
                                number("blocks_per_pass")};
  convt::MmaRowsLayout layout;
  if (!convt::make_mma_rows_layout(problem_of(problem), tile, &layout)) return py::none();
  py::dict result;
  result["h"] = dict_of(layout.h), result["w"] = dict_of(layout.w);
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(groups), CONVT_FIELD(group_ci), CONVT_FIELD(group_co), CONVT_FIELD(num_tiles), CONVT_FIELD(tiles_h);
  CONVT_FIELD(tile_h), CONVT_FIELD(passes), CONVT_FIELD(blocks_per_pass),
  CONVT_FIELD(co_tiles), CONVT_FIELD(block_co), CONVT_FIELD(column_tiles), CONVT_FIELD(column_units);
  CONVT_FIELD(position_units), CONVT_FIELD(units_w), CONVT_FIELD(units), CONVT_FIELD(taps), CONVT_FIELD(steps);
  CONVT_FIELD(result_vector), CONVT_FIELD(stage_channel), CONVT_FIELD(row_step), CONVT_FIELD(slots);
  CONVT_FIELD(slot_elements), CONVT_FIELD(weight_begin), CONVT_FIELD(column_begin_bytes), CONVT_FIELD(step_begin);
  CONVT_FIELD(group_begin), CONVT_FIELD(groups_of_steps), CONVT_FIELD(runs_w), CONVT_FIELD(vector);
  CONVT_FIELD(barriers_begin), CONVT_FIELD(threads), CONVT_FIELD(warps), CONVT_FIELD(shared_bytes);
  CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  py::list runs;
  for (int32_t n = 0; n < layout.runs_w; ++n) {
    const convt::MmaRun run = convt::mma_run(layout.w, n);
    runs.append(py::make_tuple(run.first, run.taps));
  }
  result["runs"] = runs;
  py::list columns;
  for (int32_t index = 0; index < layout.column_tiles * convt::kMmaColumns; ++index) {
    const convt::MmaColumn column = convt::mma_column(layout, index);
    columns.append(py::make_tuple(column.co, column.phase_h, column.phase_w, column.taps_h, column.taps_w));
  }
  result["columns"] = columns;
  return result;
}

// Layout of the gradient of the input.
static py::object mma_grad_input_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::MmaGradInputTile tile{
      number("instance"), number("warps"),  number("splits"),           number("tile_h"), number("tile_w"),
      number("chunk_co"), number("stages"), number("blocks_per_group"), number("order"),  number("padding")};
  convt::MmaGradInputLayout layout;
  if (!convt::make_mma_grad_input_layout(problem_of(problem), tile, &layout)) return py::none();
  py::dict result;
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(groups), CONVT_FIELD(group_ci), CONVT_FIELD(group_co), CONVT_FIELD(num_tiles), CONVT_FIELD(tiles_h);
  CONVT_FIELD(tiles_w), CONVT_FIELD(tile_h), CONVT_FIELD(tile_w), CONVT_FIELD(positions), CONVT_FIELD(tiles_per_block);
  CONVT_FIELD(longer_blocks), CONVT_FIELD(row_tiles), CONVT_FIELD(channel_units), CONVT_FIELD(position_units);
  CONVT_FIELD(warps), CONVT_FIELD(splits), CONVT_FIELD(threads), CONVT_FIELD(chunk_co), CONVT_FIELD(num_chunks);
  CONVT_FIELD(stages), CONVT_FIELD(slots), CONVT_FIELD(slot_q), CONVT_FIELD(slot_k), CONVT_FIELD(apart);
  CONVT_FIELD(joined), CONVT_FIELD(row_step), CONVT_FIELD(columns), CONVT_FIELD(slot_pitch);
  CONVT_FIELD(interleaved), CONVT_FIELD(column_pitch), CONVT_FIELD(result_channels_last);
  CONVT_FIELD(loaders), CONVT_FIELD(raw_weights), CONVT_FIELD(raw_pitch), CONVT_FIELD(raw_bytes);
  CONVT_FIELD(position_pitch), CONVT_FIELD(tap_pitch), CONVT_FIELD(channel_pitch);
  CONVT_FIELD(stage_bytes), CONVT_FIELD(depth), CONVT_FIELD(steps), CONVT_FIELD(weight_begin), CONVT_FIELD(run);
  CONVT_FIELD(offset_begin), CONVT_FIELD(barrier_begin), CONVT_FIELD(wide), CONVT_FIELD(shared_bytes);
  CONVT_FIELD(num_blocks);
#undef CONVT_FIELD
  py::list taps, positions;  // K: (channel, kh, kw, element of the stage); positions: (row, column)
  for (int32_t index = 0; index < layout.depth; ++index) {
    const convt::GradInputTap tap = convt::grad_input_tap(layout, index);
    taps.append(py::make_tuple(tap.co, tap.k_h, tap.k_w, convt::grad_input_place(layout, tap)));
  }
  for (int32_t index = 0; index < layout.positions; ++index) {
    int32_t row, column;
    convt::grad_input_position(layout, index, &row, &column);
    positions.append(py::make_tuple(row, column));
  }
  result["taps"] = taps, result["places"] = positions;
  return result;
}

// Layout of the gradient of the weight, with the rows of a CTA's GEMM and the pixels of a strip in order.
static py::object mma_grad_weight_layout(const py::dict& problem, const py::dict& plan) {
  auto number = [&plan](const char* key) { return field<int32_t>(plan, key); };
  const convt::MmaGradWeightTile tile{number("instance"),
                                      number("strip"),
                                      number("units_per_chunk"),
                                      number("block_ci"),
                                      number("block_co"),
                                      number("block_kh"),
                                      number("block_kw"),
                                      number("tile_units"),
                                      number("stages"),
                                      number("loaders"),
                                      field<bool>(plan, "taps_first"),
                                      number("pixel_order"),
                                      number("x_padding"),
                                      number("gy_padding")};
  const convt::ConvTProblem asked = problem_of(problem);
  convt::MmaGradWeightLayout layout;
  if (!convt::make_mma_grad_weight_layout(asked, tile, &layout)) return py::none();
  py::dict result(py::arg("thread_kw") = layout.block_kw,
                  py::arg("merged_rows") = convt::has_merged_rows(layout, asked));
#define CONVT_FIELD(name) result[#name] = layout.pitches.name
  CONVT_FIELD(x_row), CONVT_FIELD(x_channel), CONVT_FIELD(gy_slot), CONVT_FIELD(gy_position), CONVT_FIELD(gy_tap);
  CONVT_FIELD(gy_channel);
#undef CONVT_FIELD
#define CONVT_FIELD(name) result[#name] = layout.name
  CONVT_FIELD(groups), CONVT_FIELD(group_ci), CONVT_FIELD(group_co), CONVT_FIELD(strip), CONVT_FIELD(strips);
  CONVT_FIELD(unit_rows), CONVT_FIELD(units_of_strip), CONVT_FIELD(num_units), CONVT_FIELD(units_per_chunk);
  CONVT_FIELD(chunks), CONVT_FIELD(block_ci), CONVT_FIELD(block_co), CONVT_FIELD(block_kh), CONVT_FIELD(block_runs);
  CONVT_FIELD(run_tiles), CONVT_FIELD(kh_tiles), CONVT_FIELD(co_tiles), CONVT_FIELD(ci_tiles), CONVT_FIELD(passes);
  CONVT_FIELD(threads), CONVT_FIELD(num_blocks), CONVT_FIELD(tile_units), CONVT_FIELD(stages), CONVT_FIELD(slots);
  CONVT_FIELD(apart), CONVT_FIELD(row_step), CONVT_FIELD(columns), CONVT_FIELD(gy_begin), CONVT_FIELD(stage_bytes);
  CONVT_FIELD(shared_bytes), CONVT_FIELD(table_begin), CONVT_FIELD(warps), CONVT_FIELD(loaders);
  CONVT_FIELD(x_runs), CONVT_FIELD(gy_runs), CONVT_FIELD(columns_apart), CONVT_FIELD(x_pixel), CONVT_FIELD(gy_column);
  CONVT_FIELD(gy_pixel), CONVT_FIELD(gy_tap_column);
#undef CONVT_FIELD
  const convt::MmaGradWeightInstance& instance = convt::kMmaGradWeightInstances[tile.instance];
  result["channels_inner"] = instance.operands == convt::WeightOperands::kPixels;
  py::list rows, pixels;  // (channel, kh, kw, element of the stage)
  for (int32_t index = 0; index < layout.rows; ++index) {
    const convt::MmaGradWeightRow row = convt::mma_grad_weight_row(layout, index);
    rows.append(py::make_tuple(row.co, row.kh, row.kw, convt::mma_grad_weight_place(layout, row)));
  }
  for (int32_t k = 0; k < layout.steps * convt::kMmaGradWeightPixels; ++k) {
    pixels.append(convt::mma_grad_weight_pixel(layout, k % 4) + k / 4 * layout.next_pixels);
  }
  result["rows"] = rows, result["pixels"] = pixels;
  return result;
}

void add_mma(py::module_& module) {
  module.def("mma_rows_layout", &mma_rows_layout);
  module.def("mma_grad_input_layout", &mma_grad_input_layout);
  module.def("mma_grad_weight_layout", &mma_grad_weight_layout);
  module.attr("num_mma_grad_weight_instances") = convt::kNumMmaGradWeightInstances;
}
