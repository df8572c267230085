#include "plan/measured.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "plan/plan.h"
#include "problem/shapes.h"

namespace convt {
namespace {

// The first and the last line of such a file are the ends of a C++ string, so that the numbers of its lines are those
// of the text.
constexpr std::string_view kPlansText =
#include "tuning/h200_plans.csv"
    ;
constexpr std::string_view kTorchText =
#include "tuning/h200_torch.csv"
    ;

// A table's text, line by line and cell by cell.
class Reader {
 public:
  // Of a file. Its first line, which was the beginning of the C++ string, is empty; the second one names the columns.
  Reader(const char* file, std::string_view text, std::string_view columns) : file_(file), text_(text) {
    if (next_line(), !line_.empty()) refuse("expected an end of the line");
    if (next_line(), line_ != columns) refuse("expected the columns " + std::string(columns));
  }

  // Goes on to the next row; false where there is none.
  bool next_row() {
    if (text_.empty()) return false;
    next_line();
    return true;
  }

  // The text up to the next `end`, or to the end of the line where `end` is '\n'.
  std::string_view cell(char end) {
    begin_ = next_;
    const size_t length = line_.substr(begin_).find(end);
    if (end == '\n') return next_ = line_.size(), line_.substr(begin_);
    if (length == std::string_view::npos) refuse(std::string("expected '") + end + "' behind it");
    next_ = begin_ + length + 1;
    return line_.substr(begin_, length);
  }

  int64_t integer(char end) {
    const std::string_view digits = cell(end);
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || stop != digits.data() + digits.size()) refuse("expected an integer");
    return number;
  }

  // A number such as 44.7. Both parts of the quotient are exact, so it is the nearest double.
  double microseconds(char end) {
    const std::string_view digits = cell(end);
    constexpr size_t kMostDigits = 15;
    double whole = 0, scale = 1;
    bool behind_point = false, is_number = !digits.empty() && digits.front() != '.' && digits.size() <= kMostDigits;
    for (const char digit : digits) {
      is_number = is_number && (digit == '.' ? !behind_point : digit >= '0' && digit <= '9');
      if (digit == '.') {
        behind_point = true;
        continue;
      }
      whole = 10 * whole + (digit - '0');
      if (behind_point) scale *= 10;
    }
    if (!is_number || whole == 0) refuse("expected microseconds");
    return whole / scale;
  }

  // The value whose name this is.
  template <typename Value, size_t kCount>
  int64_t one_of(const Value (&values)[kCount], char end) {
    const std::string_view name = cell(end);
    for (const Value value : values) {
      if (name == name_of(value)) return static_cast<int64_t>(value);
    }
    std::string known;
    for (const Value value : values) known += std::string(known.empty() ? "" : ", ") + name_of(value);
    refuse("expected one of " + known);
  }

  // `what` is wrong with the last cell.
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument(std::string("convt_ext: ") + file_ + ", line " + std::to_string(line_number_) +
                                ", column " + std::to_string(begin_ + 1) + ": " + what);
  }

 private:
  void next_line() {
    const size_t end = std::min(text_.find('\n'), text_.size());
    line_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++line_number_, begin_ = next_ = 0;
  }

  const char* file_;
  std::string_view text_;  // behind the line
  std::string_view line_;
  size_t begin_ = 0, next_ = 0;  // of the last cell, and of the one behind it
  int64_t line_number_ = 0;
};

enum class Layout : int32_t { kNchw = 0, kNhwc = 1 };
const char* name_of(Layout layout) { return layout == Layout::kNchw ? "nchw" : "nhwc"; }

constexpr Direction kDirections[] = {Direction::kForward, Direction::kGradInput, Direction::kGradWeight};
constexpr Precision kPrecisions[] = {Precision::kIeee, Precision::kAten, Precision::kTf32x3, Precision::kTf32,
                                     Precision::kHalf};
constexpr Layout kLayouts[] = {Layout::kNchw, Layout::kNhwc};

#define CONVT_PROBLEM_COLUMNS                 \
  "direction,precision,layout,"               \
  "batch c_in c_out groups,"                  \
  "h: in out kernel stride padding dilation," \
  "w: in out kernel stride padding dilation,"

MeasuredProblem read_problem(Reader* reader, const MeasuredProblem* before) {
  MeasuredProblem problem{reader->one_of(kDirections, ','), reader->one_of(kPrecisions, ','),
                          reader->one_of(kLayouts, ',')};
  size_t next = 3;
  for (const int count : {4, 6, 6}) {
    for (int i = 1; i <= count; ++i) problem[next++] = reader->integer(i < count ? ' ' : ',');
  }
  if (before != nullptr && !(*before < problem)) reader->refuse("expected a problem behind that of the line before");
  return problem;
}

// "tile_h=8 staged=true"
std::vector<Knob> read_knobs(Reader* reader) {
  std::vector<Knob> knobs;
  std::string_view rest = reader->cell(',');
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view knob = rest.substr(0, end);
    const size_t equals = knob.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == knob.size() || end + 1 == rest.size()) {
      reader->refuse("expected name=value, and a blank between two of these");
    }
    knobs.push_back({knob.substr(0, equals), knob.substr(equals + 1)});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return knobs;
}

// The GPU of the measurements. Others of its capability have less bandwidth for the same arithmetic.
bool is_h200(const DeviceInfo& device) {
  return device.compute_capability == 90 && device.num_sms == 132 && device.copy_gb_per_s > 3900;
}

// The stride of an axis of size 1 means nothing.
bool has_dense_strides(const int64_t* stride, const int64_t (&sizes)[4], bool channels_last) {
  int64_t dense[4];
  fill_dense_strides(sizes, channels_last, dense);
  for (int axis = 0; axis < 4; ++axis) {
    if (sizes[axis] > 1 && stride[axis] != dense[axis]) return false;
  }
  return true;
}

// The row of a problem, whose tensors are all dense in NCHW, or all in channels_last; null where there is none.
template <typename Row>
const Row* row_of(const std::vector<Row>& rows, const ConvTProblem& asked) {
  if (asked.precision != Precision::kHalf && asked.dtype != DataType::kFloat32) return nullptr;
  MeasuredProblem problem{static_cast<int64_t>(asked.direction),
                          static_cast<int64_t>(asked.precision),
                          0,
                          asked.batch,
                          asked.c_in,
                          asked.c_out,
                          asked.groups};
  size_t next = 7;
  for (const Axis* axis : {&asked.h, &asked.w}) {
    for (const int32_t number : {axis->in, axis->out, axis->kernel, axis->stride, axis->padding, axis->dilation}) {
      problem[next++] = number;
    }
  }
  const Shapes shapes = shapes_of(asked);
  for (const bool channels_last : {false, true}) {
    if (!has_dense_strides(asked.x_stride, shapes.x, channels_last) ||
        !has_dense_strides(asked.w_stride, shapes.w, channels_last) ||
        !has_dense_strides(asked.y_stride, shapes.y, channels_last)) {
      continue;
    }
    problem[2] = channels_last;
    const auto row = std::lower_bound(rows.begin(), rows.end(), problem,
                                      [](const Row& one, const MeasuredProblem& of) { return one.problem < of; });
    if (row != rows.end() && row->problem == problem) return &*row;
  }
  return nullptr;
}

bool same_kernel(std::string_view measured, std::string_view kernel) {
  if (measured == kernel) return true;
  const size_t at = measured.find("bf16");  // "bf16" without its b
  return at != std::string_view::npos && kernel.size() + 1 == measured.size() &&
         kernel.substr(0, at) == measured.substr(0, at) && kernel.substr(at) == measured.substr(at + 1);
}

bool is_written(std::string_view text, bool value) { return text == (value ? "true" : "false"); }
bool is_written(std::string_view text, const char* value) { return text == value; }
bool is_written(std::string_view text, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  return text == std::string_view(digits, static_cast<size_t>(end - digits));
}
bool is_written(std::string_view text, int32_t value) { return is_written(text, int64_t{value}); }

}  // namespace

std::vector<MeasuredPlan> parse_measured_plans(std::string_view text) {
  Reader reader("tuning/h200_plans.csv", text, CONVT_PROBLEM_COLUMNS "kernel,knobs,measured_us,instead_us");
  std::vector<MeasuredPlan> rows;
  while (reader.next_row()) {
    MeasuredPlan row{};
    row.problem = read_problem(&reader, rows.empty() ? nullptr : &rows.back().problem);
    row.kernel = reader.cell(',');
    row.knobs = read_knobs(&reader);
    row.measured_us = reader.microseconds(',');
    row.instead_us = reader.microseconds('\n');
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<MeasuredTorch> parse_measured_torch(std::string_view text) {
  Reader reader("tuning/h200_torch.csv", text, CONVT_PROBLEM_COLUMNS "torch_us");
  std::vector<MeasuredTorch> rows;
  while (reader.next_row()) {
    const MeasuredProblem problem = read_problem(&reader, rows.empty() ? nullptr : &rows.back().problem);
    rows.push_back({problem, reader.microseconds('\n')});
  }
  return rows;
}

bool names(const MeasuredPlan& row, const Plan& plan) {
  if (!same_kernel(row.kernel, plan.kernel)) return false;
  size_t same = 0;
  auto field = [&](std::string_view name, auto value) {
    for (const Knob& knob : row.knobs) same += knob.name == name && is_written(knob.value, value);
  };
  visit_fields(plan.tile, field);
  field("threads", plan.threads);
  return same == row.knobs.size();
}

void put_measured_first(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (!is_h200(device)) return;
  // Never destroyed: threads may still call while the process ends.
  static const auto* const rows = new std::vector<MeasuredPlan>(parse_measured_plans(kPlansText));
  const MeasuredPlan* const row = row_of(*rows, problem);
  if (row == nullptr) return;
  const auto plan = std::find_if(plans->begin(), plans->end(), [&](const Plan& one) { return names(*row, one); });
  if (plan == plans->end()) return;
  plan->estimate_us = row->measured_us;
  plan->measured = true;
  std::rotate(plans->begin(), plan, plan + 1);
}

double measured_torch_us(const ConvTProblem& problem, const DeviceInfo& device) {
  if (!is_h200(device)) return 0;
  static const auto* const rows = new std::vector<MeasuredTorch>(parse_measured_torch(kTorchText));
  const MeasuredTorch* const row = row_of(*rows, problem);
  return row == nullptr ? 0 : row->torch_us;
}

}  // namespace convt
