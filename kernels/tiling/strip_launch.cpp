// Sets the parameters of the strip loader (tiling/strip_loader.cuh).
#include <algorithm>

#include "launch/launch.h"
#include "problem/shapes.h"
#include "tiling/strips.h"

namespace convt {
namespace {

tiling::StripOperand make_operand(const void* elements, const int64_t (&size)[4], const int64_t (&stride)[4],
                                  DataType dtype) {
  tiling::StripOperand operand{};
  operand.elements = elements;
  int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    operand.stride[i] = stride[i];
    last += (size[i] - 1) * stride[i];
  }
  operand.end = static_cast<const unsigned char*>(elements) + (last + 1) * element_bytes(dtype);
  return operand;
}

}  // namespace

void fill_strip_params(const ConvTProblem& problem, const StripLayout& layout, const StripPitches& pitches,
                       int32_t loaders, const Pointers& pointers, tiling::StripParams* params) {
  if (params != &layout) static_cast<StripLayout&>(*params) = layout;
  const int64_t x_size[4] = {problem.batch, problem.c_in, problem.h.in, problem.w.in};
  const int64_t gy_size[4] = {problem.batch, problem.c_out, problem.h.out, problem.w.out};
  params->x = make_operand(pointers.x, x_size, problem.x_stride, problem.dtype);
  params->gy = make_operand(pointers.y, gy_size, problem.y_stride, problem.dtype);
  params->slabs = static_cast<float*>(pointers.workspace);
  params->pitches = pitches;
  params->by_units_of_strip = FastDivmod::of(params->units_of_strip);
  params->by_strips = FastDivmod::of(params->strips);
  params->merged_rows = has_merged_rows(*params, problem);
  params->by_x_rows = FastDivmod::of(params->merged_rows ? 1 : params->tile_units * params->unit_rows);
  params->by_slots = FastDivmod::of(params->slots);
  params->by_block_kh = FastDivmod::of(params->block_kh);
  // Loading warps are distributed over the operands in proportion to their rows.
  params->loaders = loaders;
  const int32_t x_rows = params->block_ci * params->by_x_rows.value;
  const int32_t share = ceil_div(params->loaders * x_rows, x_rows + params->block_co * params->slots);
  params->x_loaders = std::clamp(share, 1, std::max(1, params->loaders - 1));
  params->bulk = problem.x_stride[3] == 1 && problem.y_stride[3] == 1;
}

}  // namespace convt
