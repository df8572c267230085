// Tiles of the portable gradient of the weight. Shared by the planner, the launcher, the kernel and the tests.
//
// A CTA's tile is input channels x output channels of one tap of a group. K is the pixels of the input, of all images.
// A pixel whose output does not exist is zero in both operands, so that a NaN in one is not multiplied by a zero in the
// other. Chunks of pixels produce slabs, which reduce/ adds. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "pack/pixels.h"
#include "plan/tile.h"
#include "portable/instances.h"
#include "problem/fast_divmod.h"
#include "problem/problem.h"

namespace convt {

struct PortableGradWeightTile {
  int32_t instance;  // index into kPortableGradWeightInstances
  int32_t stages;  // pipeline stages
  int32_t chunks;  // chunks of a launch's pixels
  bool packs_x, packs_gy;  // operands without the layout of pixels, which are packed first
  int32_t images;  // images per launch; a large batch takes several launches, because operands are packed in parts

  CONVT_TILE_FIELDS(stages, chunks, packs_x, packs_gy, images)
};

inline constexpr int32_t kPortableWeightThreads = 128;
inline constexpr int32_t kPortableWeightStageBytes = 64;  // per channel: two steps of K

struct PortableGradWeightLayout {
  Axis h, w;
  Pixels x, gy;
  int32_t images;  // per launch
  int32_t image_pixels;  // pixels per image of the input
  int32_t num_pixels;  // per launch
  int32_t chunk_pixels;  // a multiple of a stage
  FastDivmod by_columns, by_rows;  // split a pixel's index into image, row, column
  // Split a CTA's index into chunk, group, tile of input channels, tile of output channels, tap row, tap.
  FastDivmod by_chunks, by_groups, by_x_tiles, by_gy_tiles, by_kernel_h, by_kernel_w;
  int32_t stages, shared_bytes, threads;
  int64_t num_blocks;
  int32_t num_slabs;  // of all launches
  int64_t slab_elements, slab_bytes;  // of one slab; of all slabs
  int64_t x_bytes, gy_bytes;  // of packed operands
};

// Returns false if the tile has no kernel for the problem, or if 32 bits cannot represent its values.
bool make_portable_grad_weight_layout(const ConvTProblem& problem, const PortableGradWeightTile& tile,
                                      PortableGradWeightLayout* layout);

}  // namespace convt

namespace convt::portable {

// Kernel parameters. portable/launch.cpp fills them; they are constant for the whole grid.
struct GradWeightParams : PortableGradWeightLayout {
  const void* g_x;  // pixels
  const void* g_gy;  // pixels
  float* slabs;
  bool rounds_x, rounds_gy;  // the operand is float32 that is not yet rounded to TF32
};

}  // namespace convt::portable
