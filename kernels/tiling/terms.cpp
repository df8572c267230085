#include "tiling/terms.h"

#include <algorithm>
#include <cstdlib>

#include "problem/adjoint.h"
#include "problem/shapes.h"

namespace convt {
namespace {

bool make_phases(const Axis& axis, Phase (&phases)[kMaxTermPhases]) {
  if (axis.stride > kMaxTermPhases) return false;
  for (int32_t phase = 0; phase < axis.stride; ++phase) phases[phase] = make_phase(axis, phase);
  return true;
}

// Range of source coordinates that terms may have, including coordinates outside.
int64_t reach(const Axis& axis) {
  return axis.in + int64_t{axis.kernel} * std::abs(axis.dilation) + std::abs(axis.padding);
}

}  // namespace

bool make_terms_layout(const ConvTProblem& asked, TermsLayout* layout) {
  *layout = TermsLayout{};
  if (asked.direction == Direction::kGradWeight) return false;
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const Axis &h = problem.h, &w = problem.w;
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  const int64_t terms = group_ci * max_taps(h) * max_taps(w);
  if (problem.batch > kMost || problem.c_in > kMost || problem.c_out > kMost) return false;
  if (terms < 1 || terms > kMost) return false;
  const int64_t image = int64_t{h.out} * w.out;
  if (image == 0 || problem.batch == 0 || problem.c_out > kMost / image) return false;
  if (problem.batch > kMost / (image * problem.c_out)) return false;
  if (!make_phases(h, layout->phases_h) || !make_phases(w, layout->phases_w)) return false;
  // All offsets within a group's source, or weights, from its first element.
  const int64_t* source = problem.x_stride;
  const int64_t* weight = problem.w_stride;
  const int64_t sizes[4] = {0, group_ci, reach(h), reach(w)};
  if (reach_of(sizes, source) > kMost || weight_reach(problem) > kMost) return false;
  std::copy_n(source, 4, layout->source_stride);
  std::copy_n(problem.y_stride, 4, layout->result_stride);
  std::copy_n(weight, 4, layout->weight_stride);
  layout->weight_group_stride = asked.c_in / asked.groups * asked.w_stride[0];
  layout->rows = h.in;
  layout->columns = w.in;
  layout->row_step = h.position_step;
  layout->column_step = w.position_step;
  layout->group_ci = static_cast<int32_t>(group_ci);
  layout->terms = static_cast<int32_t>(terms);
  layout->results = static_cast<int32_t>(problem.batch * problem.c_out * image);
  layout->channels_last = problem.y_stride[1] < problem.y_stride[3];
  const auto channels = static_cast<int32_t>(problem.c_out);
  const int32_t digits[3] = {layout->channels_last ? channels : w.out, layout->channels_last ? w.out : h.out,
                             layout->channels_last ? h.out : channels};
  for (int i = 0; i < 3; ++i) layout->by_digits[i] = FastDivmod::of(digits[i]);
  layout->by_phases_h = FastDivmod::of(h.stride);
  layout->by_phases_w = FastDivmod::of(w.stride);
  layout->by_group_co = FastDivmod::of(static_cast<int32_t>(group_co));
  return true;
}

}  // namespace convt
