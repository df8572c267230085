// Gradient of the bias in the same kernel: the taps over which it sums grad_output, and the elements they do not read.
#include "correlate_sm90a/layout.h"
#include "problem/phases.h"

namespace convt {
namespace {

// A separate kernel sums the elements that no summed tap reads. This pays off if they are a small part of a large
// tensor.
constexpr int64_t kLeastBytes = int64_t{64} << 20, kMostRests = 16;

// Whether kernels may compute it: covering taps exist and leave few elements.
bool covers(const ConvTProblem& problem) {
  if (first_covering_tap(problem.h) < 0 || first_covering_tap(problem.w) < 0) return false;
  const int64_t rows = problem.h.out - num_uncovered(problem.h), columns = problem.w.out - num_uncovered(problem.w);
  const int64_t all = int64_t{problem.h.out} * problem.w.out, rest = all - rows * columns;
  if (rest == 0) return true;
  const int64_t bytes = problem.batch * problem.c_out * all * element_bytes(problem.dtype);
  return bytes >= kLeastBytes && rest <= all / kMostRests;
}

}  // namespace

void lay_correlate_bias(const ConvTProblem& problem, const CorrelateInstance& instance, CorrelateLayout* layout) {
  const bool in_registers = instance.form != CorrelateForm::kPixels || problem.dtype == DataType::kFloat32;
  if (in_registers && instance.taps > kCorrelateMostBiasTaps) return;
  // With `flat`, a strip may read columns of the next row past the end of its row.
  if (layout->flat && layout->strips * int64_t{layout->columns} != problem.w.in) return;
  if (!covers(problem)) return;
  layout->bias_kh = first_covering_tap(problem.h);
  layout->bias_kw = first_covering_tap(problem.w);
  const int32_t last = layout->bias_kw + problem.w.stride - 1;
  layout->bias_runs = last / instance.taps - layout->bias_kw / instance.taps + 1;
  layout->bias_turns = in_registers ? 1 : layout->ci_tiles;
  layout->bias_rows = problem.h.stride * layout->bias_runs * layout->bias_turns;
}

std::vector<CorrelateRest> correlate_rests(const ConvTProblem& problem) {
  const int32_t rows = num_uncovered(problem.h), columns = num_uncovered(problem.w);
  const int64_t (&stride)[4] = problem.y_stride;
  std::vector<CorrelateRest> rests;
  if (rows > 0) {
    const int64_t size[4] = {problem.batch, problem.c_out, rows, problem.w.out};
    rests.push_back({channel_sum_of(problem.dtype, size, stride), 0});
  }
  if (columns > 0) {  // transposed: each column is a row of the sum
    const int64_t size[4] = {problem.batch, problem.c_out, columns, problem.h.out - rows};
    const int64_t transposed[4] = {stride[0], stride[1], stride[3], stride[2]};
    rests.push_back({channel_sum_of(problem.dtype, size, transposed), rows * stride[2]});
  }
  return rests;
}

int64_t correlate_rest_rows(const ConvTProblem& problem) {
  if (!covers(problem)) return 0;
  int64_t rows = 0;
  for (const CorrelateRest& rest : correlate_rests(problem)) rows += num_channel_slabs(rest.sum);
  return rows;
}

}  // namespace convt
