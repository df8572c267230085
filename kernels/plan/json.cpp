#include <algorithm>
#include <charconv>

#include "plan/plan.h"
#include "plan/thin_instances.h"
#include "plan/tile.h"
#include "plan/upsample_layout.h"

namespace convt {
namespace {

// Just enough JSON to write: objects and arrays of numbers and names without special characters.
class JsonWriter {
 public:
  void begin(char bracket) { separate(), text_ += bracket, first_ = true; }
  void end(char bracket) { text_ += bracket, first_ = false; }
  void key(const char* name) { separate(), text_ += '"', text_ += name, text_ += "\": ", first_ = true; }
  void value(int64_t number) { separate(), text_ += std::to_string(number); }
  void value(double number) {
    // Not snprintf: its decimal point follows the locale.
    char digits[340];  // the longest double in fixed notation
    const auto end = std::to_chars(digits, digits + sizeof(digits), number, std::chars_format::fixed, 3).ptr;
    separate(), text_.append(digits, end);
  }
  void value(bool flag) { separate(), text_ += flag ? "true" : "false"; }
  void value(const char* name) { separate(), text_ += '"', text_ += name, text_ += '"'; }
  template <typename T>
  void field(const char* name, T content) {
    key(name), value(content);
  }
  std::string text() const { return text_; }

 private:
  void separate() {
    if (!first_) text_ += ", ";
    first_ = false;
  }
  std::string text_;
  bool first_ = true;
};

void write_axis(JsonWriter& json, const char* name, const Axis& axis) {
  json.key(name), json.begin('{');
  json.field("in", int64_t{axis.in}), json.field("out", int64_t{axis.out});
  json.field("kernel", int64_t{axis.kernel}), json.field("stride", int64_t{axis.stride});
  json.field("padding", int64_t{axis.padding}), json.field("dilation", int64_t{axis.dilation});
  json.end('}');
}

void write_simt_plan(JsonWriter& json, const SimtPlan& plan) {
  json.field("block_co", int64_t{plan.block_co});
  json.field("tile_n", int64_t{plan.tile_n}), json.field("tile_h", int64_t{plan.tile_h});
  json.field("tile_w", int64_t{plan.tile_w}), json.field("fused_w", int64_t{plan.fused_w});
  json.field("phases_w", int64_t{plan.phases_w});
  json.field("chunk_ci", int64_t{plan.chunk_ci}), json.field("chunk_kh", int64_t{plan.chunk_kh});
  json.field("chunk_kw", int64_t{plan.chunk_kw}), json.field("stages", int64_t{plan.stages});
}

void write_grad_weight_plan(JsonWriter& json, const GradWeightPlan& plan) {
  json.field("block_ci", int64_t{plan.block_ci}), json.field("block_co", int64_t{plan.block_co});
  json.field("block_kh", int64_t{plan.block_kh}), json.field("block_runs", int64_t{plan.block_runs});
  json.field("splits", int64_t{plan.splits});
  json.field("tile_h", int64_t{plan.tile_h}), json.field("tile_w", int64_t{1} << plan.tile_w_log2);
  json.field("tiles_per_chunk", plan.tiles_per_chunk);
}

void write_thin_plan(JsonWriter& json, const ThinPlan& plan) {
  json.field("block_co", int64_t{plan.block_co}), json.field("block_groups", int64_t{plan.block_groups});
  json.field("tile_h", int64_t{plan.tile_h}), json.field("tile_w", int64_t{plan.tile_w});
  json.field("tiles_per_block", int64_t{plan.tiles_per_block}), json.field("split_phases", plan.split_phases);
  json.field("chunk_ci", int64_t{plan.chunk_ci});
}

void write_thin_grad_input_plan(JsonWriter& json, const ThinGradInputPlan& plan) {
  json.field("block_ci", int64_t{plan.block_ci}), json.field("block_groups", int64_t{plan.block_groups});
  json.field("tile_h", int64_t{plan.tile_h}), json.field("tile_w", int64_t{plan.tile_w});
  json.field("tiles_per_block", int64_t{plan.tiles_per_block}), json.field("chunk_co", int64_t{plan.chunk_co});
  json.field("stages", int64_t{plan.stages});
}

// Depthwise plans in the words of the other thin ones: a tile is what a warp, or in channels_last a CTA, walks down. Of
// small layers, and of gathered terms, it is a CTA's results.
void write_depthwise_tile(JsonWriter& json, int32_t channels, int32_t rows, int32_t columns) {
  write_thin_plan(json, ThinPlan{0, rows, columns, 1, 1, channels, false, 1});
}

void write_thin_grad_weight_plan(JsonWriter& json, const ThinGradWeightPlan& plan) {
  json.field("block_ci", int64_t{plan.block_ci}), json.field("block_co", int64_t{plan.block_co});
  json.field("block_kh", int64_t{plan.block_kh}), json.field("block_runs", int64_t{plan.block_runs});
  json.field("strip", int64_t{plan.strip}), json.field("units_per_chunk", int64_t{plan.units_per_chunk});
  json.field("tile_units", int64_t{plan.tile_units}), json.field("stages", int64_t{plan.stages});
}

void write_thin_outer_weight_plan(JsonWriter& json, const ThinOuterWeightPlan& plan) {
  json.field("tile_h", int64_t{plan.tile_h}), json.field("tile_w", int64_t{plan.tile_w});
  json.field("tiles_per_chunk", int64_t{plan.tiles_per_chunk}), json.field("splits", int64_t{plan.splits});
  json.field("block_ci", int64_t{plan.block_ci}), json.field("block_kh", int64_t{plan.block_kh});
  json.field("block_vectors", int64_t{plan.block_vectors});
}

void write_wgmma_plan(JsonWriter& json, const WgmmaPlan& plan) {
  constexpr const char* kShapes[] = {"lines", "squares", "flat"};
  json.field("block_n", int64_t{plan.block_n}), json.field("split_phases", int64_t{plan.split_phases});
  json.field("shape", kShapes[static_cast<int32_t>(plan.shape)]), json.field("blocks", int64_t{plan.blocks});
  json.field("tile_n", int64_t{plan.tile_n}), json.field("tile_h", int64_t{plan.tile_h});
  json.field("tile_w", int64_t{plan.tile_w}), json.field("num_tiles", plan.num_tiles);
  json.field("k_steps", int64_t{plan.k_steps}), json.field("num_chunks", int64_t{plan.num_chunks});
  json.field("source_slots", int64_t{plan.source_slots}), json.field("weight_slots", int64_t{plan.weight_slots});
  json.field("slot_taps", int64_t{plan.slot_taps});
}

void write_flat_plan(JsonWriter& json, const FlatPlan& plan) {
  json.field("phases", int64_t{plan.phases}), json.field("consumers", int64_t{plan.consumers});
  json.field("sums", int64_t{plan.sums});
  json.field("split_channels", plan.split_channels);
  json.field("tile_positions", int64_t{plan.tile_positions}), json.field("window", int64_t{plan.window});
  json.field("num_tiles", plan.num_tiles);
  json.field("k_steps", int64_t{plan.k_steps}), json.field("num_chunks", int64_t{plan.num_chunks});
  json.field("source_slots", int64_t{plan.source_slots}), json.field("weight_slots", int64_t{plan.weight_slots});
  json.field("slot_taps", int64_t{plan.slot_taps});
}

void write_patch_plan(JsonWriter& json, const PatchPlan& plan) {
  json.field("blocks", int64_t{plan.blocks}), json.field("consumers", int64_t{plan.consumers});
  json.field("tile_positions", int64_t{plan.tile_positions});
  json.field("num_tiles", plan.num_tiles), json.field("num_chunks", int64_t{plan.num_chunks});
  json.field("parts", int64_t{plan.parts});
  json.field("source_slots", int64_t{plan.source_slots}), json.field("weight_slots", int64_t{plan.weight_slots});
  json.field("resident", plan.resident);
}

void write_patch_direct_plan(JsonWriter& json, const PatchDirectPlan& plan) {
  json.field("consumers", int64_t{plan.consumers}), json.field("tiles", int64_t{plan.tiles});
  json.field("slots", int64_t{plan.slots});
}

void write_patch_runs_plan(JsonWriter& json, const PatchRunsPlan& plan) {
  json.field("channels", int64_t{plan.channels}), json.field("rows", int64_t{plan.rows});
  json.field("parts", int64_t{plan.parts}), json.field("slots", int64_t{plan.slots});
}

void write_strided_plan(JsonWriter& json, const StridedPlan& plan) {
  json.field("block_n", int64_t{plan.block_n}), json.field("parts", int64_t{plan.parts});
  json.field("alternate", plan.alternate);
  json.field("tile_positions", int64_t{4 * plan.tile_quads}), json.field("strip_width", int64_t{plan.strip_width});
  json.field("num_tiles", plan.num_tiles), json.field("num_chunks", int64_t{plan.num_chunks});
  json.field("source_slots", int64_t{plan.source_slots}), json.field("weight_slots", int64_t{plan.weight_slots});
}

void write_mma_plan(JsonWriter& json, const MmaPlan& plan) {
  json.field("block_co", int64_t{plan.block_co}), json.field("split_phases", plan.split_phases);
  json.field("tile_h", int64_t{plan.tile_h}), json.field("tile_w", int64_t{plan.tile_w});
  json.field("chunk_steps", int64_t{plan.chunk_steps}), json.field("raw_slots", int64_t{plan.raw_slots});
  json.field("blocks_per_pass", int64_t{plan.blocks_per_pass});
}

void write_mma_rows_plan(JsonWriter& json, const MmaRowsPlan& plan) {
  json.field("block_co", int64_t{plan.block_co}), json.field("tile_h", int64_t{plan.tile_h});
  json.field("warps", int64_t{plan.warps}), json.field("slots", int64_t{plan.slots});
  json.field("padding", int64_t{plan.padding}), json.field("interleaved", plan.interleaved);
  json.field("blocks_per_pass", int64_t{plan.blocks_per_pass});
}

void write_window_plan(JsonWriter& json, const WindowPlan& plan) {
  json.field("block_n", int64_t{plan.block_n}), json.field("tile_h", int64_t{plan.tile_h});
  json.field("tile_w", int64_t{plan.tile_w}), json.field("overlap", int64_t{plan.overlap});
  json.field("num_tiles", plan.num_tiles), json.field("num_chunks", int64_t{plan.num_chunks});
  json.field("source_slots", int64_t{plan.source_slots});
  json.field("row_classes", int64_t{plan.row_classes}), json.field("channel_classes", int64_t{plan.channel_classes});
}

void write_nhwc_plan(JsonWriter& json, const NhwcPlan& plan) {
  json.field("block_n", int64_t{plan.block_n}), json.field("parts", int64_t{plan.parts});
  json.field("direct", plan.direct), json.field("staged", plan.staged);
  json.field("tile_n", int64_t{plan.tile_n}), json.field("tile_h", int64_t{plan.tile_h});
  json.field("tile_w", int64_t{plan.tile_w}), json.field("num_tiles", plan.num_tiles);
  json.field("num_chunks", int64_t{plan.num_chunks}), json.field("source_slots", int64_t{plan.source_slots});
  json.field("weight_slots", int64_t{plan.weight_slots});
}

void write_scatter_plan(JsonWriter& json, const ScatterPlan& plan) {
  json.field("strips", int64_t{plan.strips}), json.field("tile_h", int64_t{plan.tile_rows});
  json.field("chunk_steps", int64_t{plan.chunk_steps}), json.field("stages", int64_t{plan.stages});
}

void write_upsample_plan(JsonWriter& json, const UpsamplePlan& plan) {
  json.field("block_co", int64_t{kUpsampleChannels});
  json.field("tile_h", int64_t{plan.tile_rows}), json.field("shares", int64_t{plan.shares});
  json.field("slots", int64_t{plan.slots});
}

void write_mma_grad_input_plan(JsonWriter& json, const MmaGradInputPlan& plan) {
  json.field("warps", int64_t{plan.warps}), json.field("splits", int64_t{plan.splits});
  json.field("tile_h", int64_t{plan.tile_h}), json.field("tile_w", int64_t{plan.tile_w});
  json.field("chunk_co", int64_t{plan.chunk_co}), json.field("chunk_kh", int64_t{plan.chunk_kh});
  json.field("stages", int64_t{plan.stages}), json.field("blocks_per_group", int64_t{plan.blocks_per_group});
  json.field("order", int64_t{plan.order}), json.field("padding", int64_t{plan.padding});
}

void write_mma_grad_weight_plan(JsonWriter& json, const MmaGradWeightPlan& plan) {
  json.field("block_ci", int64_t{plan.block_ci}), json.field("block_co", int64_t{plan.block_co});
  json.field("block_kh", int64_t{plan.block_kh}), json.field("block_kw", int64_t{plan.block_kw});
  json.field("strip", int64_t{plan.strip}), json.field("units_per_chunk", int64_t{plan.units_per_chunk});
  json.field("tile_units", int64_t{plan.tile_units}), json.field("stages", int64_t{plan.stages});
  json.field("loaders", int64_t{plan.loaders});
}

void write_plan(JsonWriter& json, const ConvTProblem& problem, const Plan& plan) {
  json.begin('{');
  json.field("kernel", plan.kernel), json.field("engine", name_of(plan.engine));
  json.field("requested_precision", name_of(problem.precision));
  json.field("served_precision", name_of(plan.served_precision));
  json.field("threads", int64_t{plan.threads});
  switch (plan.engine) {
    case Engine::kSimt:
      if (problem.direction == Direction::kGradWeight) {
        write_grad_weight_plan(json, plan.grad_weight);
      } else {
        write_simt_plan(json, plan.simt);
      }
      break;
    case Engine::kThin:
      if (plan.thin_depthwise.rows > 0) {
        write_depthwise_tile(json, 1, plan.thin_depthwise.rows, plan.thin_depthwise.columns);
      } else if (plan.thin_channels_last.rows > 0) {
        const ThinChannelsLastPlan& tile = plan.thin_channels_last;
        write_depthwise_tile(json, tile.channels, tile.rows, tile.columns);
      } else if (plan.thin_direct.terms > 0) {
        write_depthwise_tile(json, 1, 1, plan.threads);
      } else if (plan.thin_gather.warps_channels > 0) {
        const ThinGatherPlan& tile = plan.thin_gather;
        const ThinGatherInstance& instance = kThinGatherInstances[tile.instance];
        const int32_t positions = tile.warps_positions * (32 / tile.lanes_channels) * instance.positions;
        const int32_t channels = tile.warps_channels * tile.lanes_channels * instance.channels;
        write_thin_plan(json, ThinPlan{0, 1, positions, 1, channels, 1, true, tile.chunk_ci});
      } else if (plan.thin_streamed.warps_channels > 0) {
        const ThinStreamedPlan& tile = plan.thin_streamed;
        const ThinStreamedInstance& instance = kThinStreamedInstances[tile.instance];
        const int32_t positions = 32 * tile.warps_positions * instance.positions;
        const int32_t channels = tile.warps_channels * instance.channels;
        write_thin_plan(json, ThinPlan{0, 1, positions, 1, channels, 1, true, 1});
      } else if (plan.thin_outer_weight.tile_h > 0) {
        write_thin_outer_weight_plan(json, plan.thin_outer_weight);
      } else if (plan.thin_grad_weight.strip > 0) {
        write_thin_grad_weight_plan(json, plan.thin_grad_weight);
      } else if (problem.direction == Direction::kGradInput) {
        write_thin_grad_input_plan(json, plan.thin_grad_input);
      } else {
        write_thin_plan(json, plan.thin);
      }
      break;
    case Engine::kWgmma: write_wgmma_plan(json, plan.wgmma); break;
    case Engine::kFlat: write_flat_plan(json, plan.flat); break;
    case Engine::kPatch:
      if (plan.patch_direct.consumers > 0) {
        write_patch_direct_plan(json, plan.patch_direct);
      } else if (plan.patch_runs.channels > 0) {
        write_patch_runs_plan(json, plan.patch_runs);
      } else {
        write_patch_plan(json, plan.patch);
      }
      break;
    case Engine::kStrided: write_strided_plan(json, plan.strided); break;
    case Engine::kMma:
      if (problem.direction == Direction::kGradInput) {
        write_mma_grad_input_plan(json, plan.mma_grad_input);
      } else if (problem.direction == Direction::kGradWeight) {
        write_mma_grad_weight_plan(json, plan.mma_grad_weight);
      } else if (plan.mma_rows.tile_h > 0) {
        write_mma_rows_plan(json, plan.mma_rows);
      } else {
        write_mma_plan(json, plan.mma);
      }
      break;
    case Engine::kWindow: write_window_plan(json, plan.window); break;
    case Engine::kNhwc: write_nhwc_plan(json, plan.nhwc); break;
    case Engine::kScatter: write_scatter_plan(json, plan.scatter); break;
    case Engine::kUpsample: write_upsample_plan(json, plan.upsample); break;
  }
  json.field("shared_bytes", int64_t{plan.shared_bytes}), json.field("num_blocks", plan.num_blocks);
  json.field("workspace_bytes", plan.workspace_bytes), json.field("packed_bytes", plan.packed_bytes);
  json.field("compute_us", plan.compute_us), json.field("memory_us", plan.memory_us);
  json.field("estimate_us", plan.estimate_us), json.field("measured", plan.measured);
  json.end('}');
}

void write_phases(JsonWriter& json, const char* name, const Axis& axis) {
  // A listing for people: long ones are cut, and left out where make_phase() would search long for the first taps.
  constexpr int32_t kMostPhases = 64, kMostTaps = 64, kMostSearched = 1 << 16;
  const int32_t searched = std::min(axis.kernel, axis.stride / greatest_common_divisor(axis.stride, axis.dilation));
  const int32_t listed = searched > kMostSearched ? 0 : std::min(num_phases(axis), kMostPhases);
  json.key(name), json.begin('[');
  for (int32_t number = 0; number < listed; ++number) {
    const Phase phase = make_phase(axis, number);
    json.begin('{'), json.field("phase", int64_t{number}), json.key("taps"), json.begin('[');
    for (int32_t t = 0; t < phase.num_taps && t < kMostTaps; ++t) {
      json.begin('[');
      json.value(int64_t{phase.first_tap + t * phase.tap_step});
      json.value(int64_t{phase.first_shift - t * phase.shift_step});
      json.end(']');
    }
    json.end(']'), json.end('}');
  }
  json.end(']');
}

}  // namespace

std::string to_json(const ConvTProblem& problem, const DeviceInfo& device) {
  const std::vector<Plan> plans = candidate_plans(problem, device);
  JsonWriter json;
  json.begin('{');
  json.key("problem"), json.begin('{');
  json.field("direction", name_of(problem.direction));
  json.field("batch", problem.batch), json.field("c_in", problem.c_in), json.field("c_out", problem.c_out);
  json.field("groups", problem.groups);
  write_axis(json, "h", problem.h), write_axis(json, "w", problem.w);
  json.field("dtype", name_of(problem.dtype)), json.field("precision", name_of(problem.precision));
  json.field("has_bias", problem.has_bias);
  json.end('}');
  json.key("device"), json.begin('{');
  json.field("compute_capability", int64_t{device.compute_capability});
  json.field("num_sms", int64_t{device.num_sms});
  json.field("shared_per_block", int64_t{device.shared_per_block});
  json.field("shared_per_sm", int64_t{device.shared_per_sm});
  json.field("clock_ghz", device.clock_ghz), json.field("copy_gb_per_s", device.copy_gb_per_s);
  json.end('}');
  json.key("plan"), write_plan(json, problem, plans.front());
  json.key("candidates"), json.begin('[');
  for (const Plan& plan : plans) write_plan(json, problem, plan);
  json.end(']');
  write_phases(json, "phases_h", problem.h), write_phases(json, "phases_w", problem.w);
  json.field("floor_us", floor_us(problem, device, 0));
  json.field("torch_us", torch_us(problem, device));
  json.field("torch_estimate_us", torch_estimate_us(problem, device));
  json.end('}');
  return json.text();
}

}  // namespace convt
