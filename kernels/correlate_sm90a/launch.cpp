// The launch of the correlate engine, and of the sum of its slabs.
#include "reduce/launch.h"

#include <algorithm>

#include "correlate_sm90a/instances.h"
#include "correlate_sm90a/params.h"
#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"

namespace convt {

CONVT_KERNEL_TABLE(correlate_sm90a, CONVT_CORRELATE_INSTANCES, const void*)

namespace {

// Boxes [row][channel][column] of a tensor in NCHW.
TensorBox rows_of(const void* data, const int64_t* stride, int64_t batch, int64_t channels, int32_t height,
                  int32_t width, int32_t box_columns, int32_t box_channels, int32_t box_rows) {
  return {data,
          {width, channels, height, batch},
          {stride[1], stride[2], stride[0]},
          {box_columns, box_channels, box_rows, 1}};
}

// Zeros around images, and behind the last column of a strip, meet what the other operand has there.
reduce::WeightTerms terms_of(const ConvTProblem& problem, const CorrelateLayout& layout, const Pointers& pointers) {
  reduce::WeightTerms terms{};
  terms.x = pointers.x;
  terms.gy = pointers.y;
  std::copy_n(problem.x_stride, 4, terms.x_stride);
  std::copy_n(problem.y_stride, 4, terms.gy_stride);
  terms.batch = problem.batch;
  terms.group_ci = layout.group_ci;
  terms.group_co = layout.group_co;
  terms.h = problem.h;
  terms.w = problem.w;
  return terms;
}

// Packs the rows of a tensor into the workspace, and returns where they are.
const void* pack_rows(const ConvTProblem& problem, const Plan& plan, const int64_t* stride,
                      const int64_t* packed_stride, int32_t rows, int32_t columns, const void* tensor, char** workspace,
                      cudaStream_t stream) {
  correlate_sm90a::PackRowsParams params{};
  params.source = tensor;
  params.packed = *workspace;
  std::copy_n(stride, 3, params.stride);
  params.columns = columns;
  const auto vector = static_cast<int32_t>(16 / element_bytes(problem.dtype));
  params.num_vectors = static_cast<int32_t>(problem.batch * packed_stride[0] / vector);
  params.by_vectors = Divisor::of(static_cast<int32_t>(packed_stride[2]) / vector);
  params.by_rows = Divisor::of(rows);
  params.by_channels = Divisor::of(static_cast<int32_t>(packed_stride[0] / packed_stride[1]));
  const int64_t blocks = ceil_div(int64_t{params.num_vectors}, int64_t{correlate_sm90a::kPackRowsThreads});
  launch_kernel(correlate_sm90a::pack_rows_of(problem.dtype),
                Grid{plan.kernel, blocks, dim3(correlate_sm90a::kPackRowsThreads)}, stream, params);
  *workspace += whole_workspace(problem.batch * packed_stride[0] * element_bytes(problem.dtype));
  return params.packed;
}

}  // namespace

void launch_correlate(const ConvTProblem& problem, const Plan& plan, const CorrelateTile& tile,
                      const Pointers& pointers, cudaStream_t stream) {
  const CorrelateInstance& instance = instance_of(kCorrelateInstances, tile.instance, problem, plan);
  correlate_sm90a::Params params{};
  CorrelateLayout& layout = params.layout;
  check_layout(make_correlate_layout(problem, tile, &layout), layout, plan);
  const ConvTProblem packed = with_packed_rows(problem, tile.packs_x, tile.packs_gy);
  const void *of_x = pointers.x, *of_gy = pointers.y;
  auto* workspace = static_cast<char*>(pointers.workspace);
  check_workspace(plan, workspace);
  if (tile.packs_x) {
    of_x = pack_rows(problem, plan, problem.x_stride, packed.x_stride, problem.h.in, problem.w.in, of_x, &workspace,
                     stream);
  }
  if (tile.packs_gy) {
    of_gy = pack_rows(problem, plan, problem.y_stride, packed.y_stride, problem.h.out, problem.w.out, of_gy, &workspace,
                      stream);
  }
  const auto x_columns = static_cast<int32_t>(128 / element_bytes(problem.dtype));
  TensorBox x = rows_of(of_x, packed.x_stride, problem.batch, problem.c_in, problem.h.in, problem.w.in, x_columns,
                        instance.columns, tile.rows);
  x.swizzle_bytes = 128;
  x.rounded = problem.dtype == DataType::kFloat32;
  params.x = make_tensor_map(problem.dtype, x);
  TensorBox gy = rows_of(of_gy, packed.y_stride, problem.batch, problem.c_out, problem.h.out, problem.w.out,
                         layout.gy_box_columns, kCorrelateRows * tile.co_parts, layout.gy_rows);
  if (layout.flat) {
    gy.sizes[0] *= gy.sizes[2];
    gy.sizes[2] = gy.box[2] = 1;
  } else {
    gy.step[2] = layout.gy_row_step;
  }
  gy.swizzle_bytes = instance.boxes ? 128 : 0;
  gy.rounded = x.rounded;
  params.gy = make_tensor_map(problem.dtype, gy);
  params.slabs = reinterpret_cast<float*>(workspace);
  launch_kernel(correlate_sm90a::kKernels[tile.instance](), grid_of(plan), stream, params);
  // In the order of the slabs.
  const int64_t* to = problem.w_stride;
  const int64_t size[4] = {problem.h.kernel, problem.w.kernel, layout.channels, layout.group_co};
  const int64_t stride[4] = {to[2], to[3], to[0], to[1]};
  launch_add_slabs(problem.dtype, workspace, layout.chunks, size, stride, pointers.w, stream,
                   terms_of(problem, layout, pointers));
}

}  // namespace convt
