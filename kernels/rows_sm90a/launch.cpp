#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

#include "launch/launcher.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"
#include "plan/tap_program.h"
#include "rows_sm90a/instances.h"
#include "rows_sm90a/params.h"

namespace convt {

namespace {

TapProgram tap_program_of(const ConvTProblem& problem, const Plan& plan) {
  TapProgram program;
  if (!make_tap_program(problem, &program)) {
    throw std::runtime_error(std::string("convt_ext: the plan for ") + plan.kernel + " is of another problem");
  }
  return program;
}

// Launches the packing kernel, unless the weights are packed, and sets the parameters that both kernels share.
template <typename Params>
pack::Params begin_launch(const ConvTProblem& problem, const Plan& plan, const RowsTile& tile, int32_t tap_bytes,
                          const TapProgram& program, const Pointers& pointers, cudaStream_t stream, Params* params) {
  if (pointers.packed == nullptr) throw std::runtime_error(std::string("convt_ext: no workspace for ") + plan.kernel);
  const PackLaunch packing =
      make_pack_launch(problem, program, tile.block_n, 1, tile.num_chunks, tap_bytes, pointers.w, pointers.packed);
  if (!pointers.is_packed) launch_pack(problem, plan, packing, stream);
  const bool forward = problem.direction == Direction::kForward;
  params->packed = packing.params.packed;
  params->packed_tile_step = packing.params.packed_tile_step;
  params->bias = forward ? pointers.bias : nullptr;
  params->steps = steps_of(pointers);
  params->result = forward ? pointers.y : pointers.x;
  std::copy_n(result_stride(problem), std::size(params->result_stride), params->result_stride);
  params->k_channels = packing.params.k_channels;
  params->n_channels = packing.params.n_channels;
  params->channel_tiles = FastDivmod::of(tile.grid.channels);
  params->group_tiles = FastDivmod::of(tile.grid.groups);
  params->inner_tiles = FastDivmod::of(tile.grid.inner);
  params->outer_tiles = FastDivmod::of(tile.grid.outer);
  params->num_tiles = tile.num_tiles;
  params->num_chunks = tile.num_chunks;
  params->source_slots = tile.source_slots;
  params->barriers_begin = tile.barriers_begin;
  return packing.params;
}

const void* source_of(const ConvTProblem& problem, const Pointers& pointers) {
  return problem.direction == Direction::kForward ? pointers.x : pointers.y;
}

// Forward: a slot contains all taps of one H phase, or of both for a 3 x 3 kernel, in packed order. Gradient: it
// contains the taps of one row, even columns first, then odd columns, which are packed separately.
void set_weight_copies(const TapProgram& program, const pack::Params& weights, bool forward,
                       rows_sm90a::strided::Params* params) {
  const int32_t tap_bytes = weights.tap_bytes;
  rows_sm90a::strided::WeightCopy* copy = params->copies;
  if (forward) {
    const bool all_phases = program.num_taps[0] != program.num_taps[1];
    params->num_copies = all_phases ? 2 : 1;
    for (int32_t phase = 0; phase < 2; ++phase) {
      const int32_t before = all_phases && phase > 0 ? program.num_taps[0] * tap_bytes : 0;
      const int32_t bytes = program.num_taps[phase] * tap_bytes;
      *copy++ = {weights.packed_phase_begin[phase], bytes, before, bytes};
    }
    return;
  }
  params->num_copies = 2;
  const int32_t rows = program.runs[0].num_h + program.runs[2].num_h;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t odd = 0; odd < 2; ++odd) {
      const TapRun& run = program.runs[row % 2 * 2 + odd];
      const int32_t first_tap = run.first_tap + row / 2 * run.num_w;
      *copy++ = {int64_t{first_tap} * tap_bytes, program.num_taps[0] * tap_bytes, 2 * odd * tap_bytes,
                 run.num_w * tap_bytes};
    }
  }
}

// Sets the source. A tensor map requires an address aligned to 16 bytes, which tensors need not have.
void set_source(const ConvTProblem& problem, const StridedShape& shape, const StridedTile& tile, const void* source,
                rows_sm90a::strided::Params* params) {
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t* stride = source_stride(problem);
  params->source = source;
  std::copy_n(stride, 4, params->source_stride);
  params->source_h = gemm.source_h;
  params->source_w = gemm.source_w;
  params->whole_images = tile.whole_images;
  params->image_copies = tile.image_copies;
  params->box_lead = tile.box_lead;
  params->pitch = tile.pitch;
  params->box_rows = tile.box_rows;
  params->channel_bytes = tile.pitch * shape.element();
  params->row_bytes = tile.whole_images ? gemm.source_w * shape.element() : shape.channels() * params->channel_bytes;
  params->image_bytes = tile.box_rows * shape.channels() * params->channel_bytes;
  params->stage_bytes = tile.stage_bytes;
  params->has_map = is_aligned(source, 16);
  if (!params->has_map || tile.image_copies) return;
  TensorBox box{source,
                {gemm.source_w, int64_t{gemm.k_channels} * problem.groups, gemm.source_h, problem.batch},
                {stride[1], stride[2], stride[0]},
                {tile.pitch, shape.channels(), tile.box_rows, tile.tile_images}};
  if (tile.whole_images) {
    box.sizes[0] *= gemm.source_h;
    box.sizes[2] = 1;
    box.strides[1] = stride[1];  // unused, because the size is 1
  }
  params->map = make_tensor_map(problem.dtype, box);
}

// Orders taps by the source coordinates that they read. In forward this reverses them.
void order_by_source(Direction direction, TapProgram* program) {
  if (direction != Direction::kForward) return;
  TapRun& run = program->runs[0];
  run.kh += (run.num_h - 1) * run.kh_step;
  run.kw += (run.num_w - 1) * run.kw_step;
  run.kh_step = -run.kh_step;
  run.kw_step = -run.kw_step;
}

// Map of a class of the source's rows and channels, [image][row][channel][column]. It starts at the 16-byte vector that
// contains the start of the first row.
CUtensorMap map_source(const ConvTProblem& problem, const WindowShape& shape, const WindowTile& tile,
                       const void* source, int32_t row_class, int32_t channel_class) {
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t* stride = source_stride(problem);
  const int64_t begin = row_class * stride[2] + channel_class * stride[1], shift = begin % shape.vector();
  const TensorBox box = {
      static_cast<const char*>(source) + (begin - shift) * shape.element(),
      {gemm.source_w + shift, problem.groups * gemm.k_channels / tile.channel_classes,
       ceil_div(gemm.source_h - row_class, tile.row_classes), problem.batch},
      {tile.channel_classes * stride[1], tile.row_classes * stride[2], stride[0]},
      {tile.pitch, shape.channels() / tile.channel_classes, tile.box_rows(), 1},
  };
  return make_tensor_map(problem.dtype, box);
}

int32_t log2_of(int32_t power) {
  int32_t log2 = 0;
  while (1 << log2 < power) ++log2;
  return log2;
}

void set_source(const ConvTProblem& problem, const WindowShape& shape, const WindowTile& tile, const void* source,
                rows_sm90a::window::Params* params) {
  const int32_t row_classes = tile.row_classes, channel_classes = tile.channel_classes;
  for (int32_t map = 0; map < row_classes * channel_classes; ++map) {
    params->source[map] = map_source(problem, shape, tile, source, map / channel_classes, map % channel_classes);
  }
  params->first_h = window_shift(problem.h, problem.direction);
  params->first_w = window_shift(problem.w, problem.direction);
  params->row_classes_log2 = log2_of(row_classes);
  params->channel_classes_log2 = log2_of(channel_classes);
  params->row_shift = static_cast<int32_t>(source_stride(problem)[2] % shape.vector());
  params->channel_shift = static_cast<int32_t>(source_stride(problem)[1] % shape.vector());
  params->channel_bytes = tile.pitch * shape.element();
  params->row_bytes = shape.channels() / channel_classes * params->channel_bytes;
  params->box_bytes = tile.box_rows() * params->row_bytes;
  params->class_bytes = channel_classes * params->box_bytes;
  params->neighbour_bytes = channel_classes > 1 ? params->box_bytes : params->channel_bytes;
  params->far_bytes = (shape.element() == 2 ? 8 : 4) / channel_classes * params->channel_bytes;
  params->source_bytes = row_classes * params->class_bytes;
  params->slot_bytes = tile.slot_bytes;
}

}  // namespace

void launch_strided(const ConvTProblem& problem, const Plan& plan, const StridedTile& tile, const Pointers& pointers,
                    cudaStream_t stream) {
  const StridedInstance& instance = instance_of(kStridedInstances, tile.instance, problem, plan);
  const TapProgram program = tap_program_of(problem, plan);
  rows_sm90a::strided::Params params{};
  const pack::Params weights =
      begin_launch(problem, plan, tile, instance.tap_bytes(), program, pointers, stream, &params);
  set_weight_copies(program, weights, instance.output(), &params);
  set_source(problem, instance, tile, source_of(problem, pointers), &params);
  params.batch = static_cast<int32_t>(problem.batch);
  params.width = problem.w.in;
  params.unit = storable_neighbours(problem, params.result);
  params.phase_tiles = FastDivmod::of(tile.grid.phases);
  params.tile_images = tile.tile_images;
  params.tile_quads = tile.tile_quads;
  params.strip_width = tile.strip_width;
  params.by_row = FastDivmod::of(tile.strip_width / 4);
  params.by_strip = FastDivmod::of(problem.h.in * (tile.strip_width / 4));
  params.splits = tile.splits;
  params.weight_slots = tile.weight_slots;
  params.weights_begin = tile.weights_begin;
  params.zeros_begin = tile.zeros_begin;
  const void* const kernel = rows_sm90a::strided::kernel_of(tile.instance);
  launch_kernel(kernel, grid_of(plan, !pointers.is_packed, tile.splits), stream, params);
}

void launch_window(const ConvTProblem& problem, const Plan& plan, const WindowTile& tile, const Pointers& pointers,
                   cudaStream_t stream) {
  const WindowInstance& instance = instance_of(kWindowInstances, tile.instance, problem, plan);
  TapProgram program = tap_program_of(problem, plan);
  order_by_source(problem.direction, &program);
  const GemmShape gemm = make_gemm_shape(problem);
  rows_sm90a::window::Params params{};
  begin_launch(problem, plan, tile, instance.tap_bytes(), program, pointers, stream, &params);
  set_source(problem, instance, tile, source_of(problem, pointers), &params);
  params.result_h = gemm.result_h;
  params.result_w = gemm.result_w;
  params.begin_w = tile.begin_w;
  params.advance_w = tile.tile_w - tile.overlap;
  params.tile_h = tile.tile_h;
  params.overlap = tile.overlap;
  params.tile_w_log2 = log2_of(tile.tile_w);
  params.warps_w_log2 = log2_of(tile.tile_w / kWindowColumns);
  params.granule = tile.granule;
  while (!is_aligned(params.result, params.granule * instance.element())) params.granule /= 2;
  params.staged_begin = tile.staged_begin;
  const void* const kernel = rows_sm90a::window::kernel_of(tile.instance);
  launch_kernel(kernel, grid_of(plan, !pointers.is_packed), stream, params);
}

}  // namespace convt
