#include <algorithm>
#include <charconv>
#include <string_view>

#include "plan/family.h"
#include "plan/plan.h"
#include "problem/phases.h"

namespace convt {
namespace {

// Minimal JSON writer: objects and arrays of numbers, and names without special characters.
class JsonWriter {
 public:
  void begin(char bracket) { separate(), text_ += bracket, first_ = true; }
  void end(char bracket) { text_ += bracket, first_ = false; }
  void key(std::string_view name) { separate(), text_ += '"', text_ += name, text_ += "\": ", first_ = true; }
  void value(int64_t number) { separate(), text_ += std::to_string(number); }
  void value(int32_t number) { value(int64_t{number}); }
  void value(double number) {
    // snprintf would use the locale's decimal point.
    char digits[340];  // the longest double in fixed notation
    const auto end = std::to_chars(digits, digits + sizeof(digits), number, std::chars_format::fixed, 3).ptr;
    separate(), text_.append(digits, end);
  }
  void value(bool flag) { separate(), text_ += flag ? "true" : "false"; }
  void value(const char* name) { separate(), text_ += '"', text_ += name, text_ += '"'; }
  template <typename T>
  void field(std::string_view name, T content) {
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
  json.field("in", axis.in), json.field("out", axis.out);
  json.field("kernel", axis.kernel), json.field("stride", axis.stride);
  json.field("padding", axis.padding), json.field("dilation", axis.dilation);
  json.end('}');
}

void write_plan(JsonWriter& json, const ConvTProblem& problem, const Plan& plan) {
  json.begin('{');
  json.field("kernel", plan.kernel), json.field("engine", plan.family->engine);
  json.field("family", plan.family->name);
  json.field("fuses", fuses_of(*plan.family, problem) != epilogue::Fuses::kNothing);
  json.field("gives_grad_bias", plan.gives_grad_bias);
  json.field("requested_precision", name_of(problem.precision));
  json.field("served_precision", name_of(plan.served_precision));
  json.field("threads", plan.threads);
  visit_fields(plan.tile, [&json](std::string_view name, auto value) { json.field(name, value); });
  json.field("shared_bytes", plan.shared_bytes), json.field("num_blocks", plan.num_blocks);
  json.field("workspace_bytes", plan.workspace_bytes), json.field("packed_bytes", plan.packed_bytes);
  json.field("compute_us", plan.compute_us), json.field("memory_us", plan.memory_us);
  json.field("estimate_us", plan.estimate_us);
  json.end('}');
}

void write_phases(JsonWriter& json, const char* name, const Axis& axis) {
  // The listing is for human readers. Long lists are truncated. Axes with a long search for first taps in make_phase()
  // are omitted.
  constexpr int32_t kMostPhases = 64, kMostTaps = 64, kMostSearched = 1 << 16;
  const int32_t searched = std::min(axis.kernel, axis.stride / greatest_common_divisor(axis.stride, axis.dilation));
  const int32_t listed = searched > kMostSearched ? 0 : std::min(num_phases(axis), kMostPhases);
  json.key(name), json.begin('[');
  for (int32_t number = 0; number < listed; ++number) {
    const Phase phase = make_phase(axis, number);
    json.begin('{'), json.field("phase", number), json.key("taps"), json.begin('[');
    for (int32_t t = 0; t < phase.num_taps && t < kMostTaps; ++t) {
      json.begin('[');
      json.value(phase.first_tap + t * phase.tap_step);
      json.value(phase.first_shift - t * phase.shift_step);
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
  if (is_volume(problem)) write_axis(json, "d", problem.d);
  write_axis(json, "h", problem.h), write_axis(json, "w", problem.w);
  json.field("dtype", name_of(problem.dtype)), json.field("precision", name_of(problem.precision));
  json.field("has_bias", problem.has_bias);
  json.end('}');
  json.key("device"), json.begin('{');
  json.field("compute_capability", device.compute_capability);
  json.field("num_sms", device.num_sms);
  json.field("shared_per_block", device.shared_per_block);
  json.field("shared_per_sm", device.shared_per_sm);
  json.field("clock_ghz", device.clock_ghz), json.field("copy_gb_per_s", device.copy_gb_per_s);
  json.end('}');
  json.key("plan"), write_plan(json, problem, plans.front());
  json.key("candidates"), json.begin('[');
  for (const Plan& plan : plans) write_plan(json, problem, plan);
  json.end(']');
  write_phases(json, "phases_h", problem.h), write_phases(json, "phases_w", problem.w);
  json.field("floor_us", floor_us(problem, device, 0));
  json.field("torch_us", torch_us(problem, device));
  json.end('}');
  return json.text();
}

}  // namespace convt
