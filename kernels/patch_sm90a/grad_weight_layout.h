// The gradient of the weight of layers whose kernel is their stride, in NCHW: which pixels and weights a CTA has, and
// where its operands lie in shared memory. One definition for the planner, the launch and the kernel
// (patch_sm90a/grad_weight.cuh).
//
// GEMM: rows are 64 output channels of one tap, columns input channels, K is pixels: the positions of the input. A
// stage is a *unit* of pixels: a strip of one row of an image, or whole rows. Its pixels of the input are rows of 128
// bytes as products want their second operand, [16-byte swizzle][input channel]. A row of grad_output has the taps of a
// pixel one after the other, [tap row][output channel][pixel][tap column], so that one load brings all taps of a row
// for a thread, each of which is the first operand of a product of its own. Nothing is multiplied that the formula does
// not have, but zeros by zeros where a strip or an image ends.
//
// Called by: plan/families.h, the plans, launch and kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "patch_sm90a/instances.h"
#include "problem/problem.h"

namespace convt {

struct PatchGradWeightTile {
  int32_t instance;  // index into kPatchGradWeightInstances
  int32_t ci_parts, kh_parts;  // what the two warpgroups of a CTA share: blocks of input channels, or rows of taps
  int32_t rows;  // of pixels, of a unit: more than one only whole ones
  int32_t pixels;  // of a unit
  int32_t slots;  // stages in shared memory
  int32_t units_per_chunk;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("ci_parts", ci_parts);
    field("kh_parts", kh_parts);
    field("rows", rows);
    field("pixels", pixels);
    field("slots", slots);
    field("units_per_chunk", units_per_chunk);
  }
};

inline constexpr int32_t kPatchWeightRows = 64;  // output channels of a warpgroup
inline constexpr int32_t kPatchWeightConsumers = 2;  // warpgroups that multiply
inline constexpr int32_t kPatchWeightThreads = 128 * (kPatchWeightConsumers + 1);

struct PatchGradWeightLayout {
  int32_t group_ci, group_co, channels;  // of the input: of a group, of all
  int32_t kernel_h, kernel_w;
  int32_t co_tiles, ci_tiles, kh_tiles;  // fastest first; then groups
  int32_t ci_parts, kh_parts;
  int32_t passes;  // CTAs of a chunk
  int32_t num_units, units_per_chunk, chunks;
  int32_t strips, row_units;  // units of a row, and of an image
  int32_t rows, pixels;
  int32_t steps;  // of K, of a unit: two at least
  bool whole_rows;  // pixels of an image are one run, of which a unit is a part

  int32_t columns;  // of grad_output, of a box
  int32_t pitch;  // bytes from an output channel of a stage to the next
  int32_t boxes;  // of the input, of a block of its channels: 128 bytes of every channel each
  int32_t gy_begin, stage_bytes, slots, barriers_begin;  // in shared memory

  int32_t threads, shared_bytes;
  int64_t num_blocks;
};

// Of the slabs of the gradient of the bias.
inline int64_t patch_bias_bytes(const ConvTProblem& problem, const PatchGradWeightLayout& layout) {
  return int64_t{layout.chunks} * layout.kernel_h * problem.c_out * 4;
}

// Everything that follows from a plan's tile; false where it is not legal. Does not ask whether the device has so much
// shared memory.
bool make_patch_grad_weight_layout(const ConvTProblem& problem, const PatchGradWeightTile& tile,
                                   PatchGradWeightLayout* layout);

}  // namespace convt
