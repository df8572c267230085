// Candidates of a problem, their estimates, and what PyTorch is estimated to take.
#include <array>
#include <vector>

#include "module/values.h"
#include "plan/upsample_layout.h"
#include "plan/wgmma.h"

static py::dict dict_of(const convt::Plan& plan) {
  py::dict result(py::arg("engine") = convt::name_of(plan.engine), py::arg("kernel") = plan.kernel,
                  py::arg("threads") = plan.threads, py::arg("shared_bytes") = plan.shared_bytes,
                  py::arg("num_blocks") = plan.num_blocks, py::arg("workspace_bytes") = plan.workspace_bytes,
                  py::arg("source_on_vectors") = plan.source_on_vectors,
                  py::arg("weight_on_vectors") = plan.weight_on_vectors,
                  py::arg("result_on_vectors") = plan.result_on_vectors, py::arg("packed_bytes") = plan.packed_bytes,
                  py::arg("compute_us") = plan.compute_us, py::arg("memory_us") = plan.memory_us,
                  py::arg("estimate_us") = plan.estimate_us, py::arg("measured") = plan.measured);
  if (plan.thin_depthwise.rows > 0) {
    result["instance"] = plan.thin_depthwise.instance, result["rows"] = plan.thin_depthwise.rows;
    result["columns"] = plan.thin_depthwise.columns;
    return result;
  }
  if (plan.thin_channels_last.rows > 0) {
    const convt::ThinChannelsLastPlan& tile = plan.thin_channels_last;
    result["instance"] = tile.instance, result["rows"] = tile.rows, result["vector"] = tile.vector;
    result["channels"] = tile.channels, result["columns"] = tile.columns;
    return result;
  }
  if (plan.thin_direct.terms > 0) {
    result["instance"] = plan.thin_direct.instance, result["terms"] = plan.thin_direct.terms;
    return result;
  }
  if (plan.thin_gather.warps_channels > 0) {
    const convt::ThinGatherPlan& tile = plan.thin_gather;
    result["instance"] = tile.instance, result["lanes_channels"] = tile.lanes_channels;
    result["warps_channels"] = tile.warps_channels, result["warps_positions"] = tile.warps_positions;
    result["chunk_ci"] = tile.chunk_ci, result["chunk_taps"] = tile.chunk_taps, result["stages"] = tile.stages;
    return result;
  }
  if (plan.thin_streamed.warps_channels > 0) {
    const convt::ThinStreamedPlan& tile = plan.thin_streamed;
    result["instance"] = tile.instance, result["warps_channels"] = tile.warps_channels;
    result["warps_positions"] = tile.warps_positions;
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
  if (plan.thin_outer_weight.tile_h > 0) {
    const convt::ThinOuterWeightPlan& tile = plan.thin_outer_weight;
    result["instance"] = tile.instance, result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w;
    result["tiles_per_chunk"] = tile.tiles_per_chunk, result["splits"] = tile.splits;
    result["block_ci"] = tile.block_ci, result["block_kh"] = tile.block_kh;
    result["block_vectors"] = tile.block_vectors;
    return result;
  }
  if (plan.thin_grad_weight.strip > 0) {
    const convt::ThinGradWeightPlan& tile = plan.thin_grad_weight;
    result["instance"] = tile.instance, result["strip"] = tile.strip;
    result["units_per_chunk"] = tile.units_per_chunk;
    result["block_ci"] = tile.block_ci, result["block_co"] = tile.block_co;
    result["block_kh"] = tile.block_kh, result["block_runs"] = tile.block_runs;
    result["tile_units"] = tile.tile_units, result["stages"] = tile.stages;
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
  if (plan.mma_grad_input.tile_h > 0) {
    const convt::MmaGradInputPlan& tile = plan.mma_grad_input;
    result["instance"] = tile.instance, result["warps"] = tile.warps, result["splits"] = tile.splits;
    result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w;
    result["chunk_co"] = tile.chunk_co, result["chunk_kh"] = tile.chunk_kh, result["stages"] = tile.stages;
    result["blocks_per_group"] = tile.blocks_per_group;
    result["order"] = tile.order, result["padding"] = tile.padding;
    return result;
  }
  if (plan.mma_grad_weight.strip > 0) {
    const convt::MmaGradWeightPlan& tile = plan.mma_grad_weight;
    result["instance"] = tile.instance, result["strip"] = tile.strip;
    result["units_per_chunk"] = tile.units_per_chunk;
    result["block_ci"] = tile.block_ci, result["block_co"] = tile.block_co;
    result["block_kh"] = tile.block_kh, result["block_kw"] = tile.block_kw;
    result["tile_units"] = tile.tile_units, result["stages"] = tile.stages, result["loaders"] = tile.loaders;
    result["taps_first"] = tile.taps_first, result["pixel_order"] = tile.pixel_order;
    result["x_padding"] = tile.x_padding, result["gy_padding"] = tile.gy_padding;
    return result;
  }
  if (plan.mma_rows.tile_h > 0) {
    const convt::MmaRowsPlan& tile = plan.mma_rows;
    result["instance"] = tile.instance, result["warps"] = tile.warps, result["tile_h"] = tile.tile_h;
    result["block_co"] = tile.block_co, result["slots"] = tile.slots;
    result["padding"] = tile.padding, result["interleaved"] = tile.interleaved;
    result["blocks_per_pass"] = tile.blocks_per_pass;
    return result;
  }
  if (plan.engine == convt::Engine::kMma) {
    const convt::MmaPlan& tile = plan.mma;
    result["instance"] = tile.instance, result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w;
    result["block_co"] = tile.block_co, result["split_phases"] = tile.split_phases;
    result["chunk_steps"] = tile.chunk_steps, result["raw_slots"] = tile.raw_slots;
    result["blocks_per_pass"] = tile.blocks_per_pass;
    return result;
  }
  if (plan.engine == convt::Engine::kWindow) {
    const convt::WindowPlan& tile = plan.window;
    result["instance"] = tile.instance, result["block_n"] = tile.block_n;
    result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w, result["overlap"] = tile.overlap;
    result["num_chunks"] = tile.num_chunks, result["num_tiles"] = tile.num_tiles;
    result["source_slots"] = tile.source_slots, result["slot_bytes"] = tile.slot_bytes;
    result["row_classes"] = tile.row_classes, result["channel_classes"] = tile.channel_classes;
    result["pitch"] = tile.pitch;
    result["staged_begin"] = tile.staged_begin, result["barriers_begin"] = tile.barriers_begin;
    return result;
  }
  if (plan.engine == convt::Engine::kScatter) {
    const convt::ScatterPlan& tile = plan.scatter;
    result["instance"] = tile.instance, result["strips"] = tile.strips, result["tile_h"] = tile.tile_rows;
    result["chunk_steps"] = tile.chunk_steps, result["stages"] = tile.stages;
    return result;
  }
  if (plan.engine == convt::Engine::kUpsample) {
    const convt::UpsamplePlan& tile = plan.upsample;
    result["instance"] = tile.instance, result["block_co"] = convt::kUpsampleChannels;
    result["tile_h"] = tile.tile_rows;
    result["shares"] = tile.shares, result["slots"] = tile.slots;
    return result;
  }
  if (plan.engine == convt::Engine::kFlat) {
    const convt::FlatPlan& tile = plan.flat;
    result["instance"] = tile.instance, result["phases"] = tile.phases;
    result["consumers"] = tile.consumers, result["sums"] = tile.sums, result["split_channels"] = tile.split_channels;
    result["tile_positions"] = tile.tile_positions;
    result["window"] = tile.window, result["num_tiles"] = tile.num_tiles;
    result["k_steps"] = tile.k_steps, result["num_chunks"] = tile.num_chunks;
    result["source_slots"] = tile.source_slots, result["weight_slots"] = tile.weight_slots;
    result["slot_taps"] = tile.slot_taps, result["tap_bytes"] = tile.tap_bytes;
    result["weights_begin"] = tile.weights_begin, result["staged_begin"] = tile.staged_begin;
    result["barriers_begin"] = tile.barriers_begin;
    result["plane_bytes"] = tile.plane_bytes;
    return result;
  }
  if (plan.patch_direct.consumers > 0) {
    const convt::PatchDirectPlan& tile = plan.patch_direct;
    result["instance"] = tile.instance, result["consumers"] = tile.consumers;
    result["tiles"] = tile.tiles, result["slots"] = tile.slots;
    return result;
  }
  if (plan.patch_runs.channels > 0) {
    const convt::PatchRunsPlan& tile = plan.patch_runs;
    result["instance"] = tile.instance, result["channels"] = tile.channels, result["rows"] = tile.rows;
    result["parts"] = tile.parts, result["slots"] = tile.slots;
    return result;
  }
  if (plan.engine == convt::Engine::kPatch) {
    const convt::PatchPlan& tile = plan.patch;
    result["instance"] = tile.instance, result["blocks"] = tile.blocks;
    result["consumers"] = tile.consumers;
    result["tile_positions"] = tile.tile_positions, result["num_tiles"] = tile.num_tiles, result["step"] = tile.step;
    result["num_chunks"] = tile.num_chunks, result["staged"] = tile.staged, result["resident"] = tile.resident;
    result["whole_rows"] = tile.whole_rows, result["parts"] = tile.parts;
    result["source_slots"] = tile.source_slots, result["weight_slots"] = tile.weight_slots;
    result["weights_begin"] = tile.weights_begin, result["staged_begin"] = tile.staged_begin;
    result["barriers_begin"] = tile.barriers_begin;
    return result;
  }
  if (plan.engine == convt::Engine::kStrided) {
    const convt::StridedPlan& tile = plan.strided;
    result["instance"] = tile.instance, result["block_n"] = tile.block_n, result["parts"] = tile.parts;
    result["strip_width"] = tile.strip_width, result["tile_images"] = tile.tile_images;
    result["tile_quads"] = tile.tile_quads, result["tile_positions"] = 4 * tile.tile_quads;
    result["whole_images"] = tile.whole_images, result["box_rows"] = tile.box_rows;
    result["image_copies"] = tile.image_copies, result["alternate"] = tile.alternate;
    result["pitch"] = tile.pitch, result["box_lead"] = tile.box_lead;
    result["num_chunks"] = tile.num_chunks, result["stage_bytes"] = tile.stage_bytes;
    result["source_slots"] = tile.source_slots, result["weight_slots"] = tile.weight_slots;
    result["weights_begin"] = tile.weights_begin, result["zeros_begin"] = tile.zeros_begin;
    result["barriers_begin"] = tile.barriers_begin, result["num_tiles"] = tile.num_tiles;
    return result;
  }
  if (plan.engine == convt::Engine::kNhwc) {
    const convt::NhwcPlan& tile = plan.nhwc;
    result["instance"] = tile.instance, result["block_n"] = tile.block_n, result["parts"] = tile.parts;
    result["direct"] = tile.direct, result["staged"] = tile.staged;
    result["tile_n"] = tile.tile_n, result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w;
    result["box_h"] = tile.box_h, result["box_w"] = tile.box_w;
    result["num_chunks"] = tile.num_chunks, result["num_windows"] = tile.num_windows;
    result["stage_bytes"] = tile.stage_bytes, result["num_tiles"] = tile.num_tiles;
    result["source_slots"] = tile.source_slots, result["weight_slots"] = tile.weight_slots;
    result["weights_begin"] = tile.weights_begin, result["staged_begin"] = tile.staged_begin;
    result["barriers_begin"] = tile.barriers_begin, result["bias_begin"] = tile.bias_begin;
    return result;
  }
  const convt::SimtPlan& tile = plan.simt;
  result["instance"] = tile.instance, result["block_co"] = tile.block_co, result["tile_n"] = tile.tile_n;
  result["tile_h"] = tile.tile_h, result["tile_w"] = tile.tile_w, result["fused_w"] = tile.fused_w;
  result["phases_w"] = tile.phases_w, result["chunk_ci"] = tile.chunk_ci, result["chunk_kh"] = tile.chunk_kh;
  result["chunk_kw"] = tile.chunk_kw, result["stages"] = tile.stages;
  return result;
}

static py::list list_of(const std::vector<convt::Plan>& plans, convt::Direction direction) {
  py::list result;
  for (const convt::Plan& plan : plans) {
    py::dict entry = dict_of(plan);
    if (direction == convt::Direction::kGradWeight) entry["grad_weight"] = dict_of(plan.grad_weight);
    result.append(entry);
  }
  return result;
}

void add_plans(py::module_& module) {
  module.def("candidates", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    const convt::ConvTProblem asked = problem_of(problem);
    return list_of(convt::candidate_plans(asked, device_of(device)), asked.direction);
  });
  module.def("choose", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return dict_of(convt::choose_plan(problem_of(problem), device_of(device)));
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
  module.def("torch_estimate_us", [](const py::dict& problem, const std::array<int64_t, 6>& device) {
    return convt::torch_estimate_us(problem_of(problem), device_of(device));
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
