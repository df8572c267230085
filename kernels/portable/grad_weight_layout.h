// How the portable engine (portable/) divides a gradient of the weight. One definition for the planner, the launcher,
// the kernel and the tests.
//
// A CTA's tile is input channels x output channels of one tap of a group; K is pixels of the input, of all images. A
// pixel whose output does not exist is zero in both operands, so that a NaN of one meets no zero of the other. Chunks
// of pixels are slabs, which reduce/ adds. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "pack/pixels.h"
#include "plan/fast_divmod.h"
#include "portable/instances.h"
#include "problem/problem.h"

namespace convt {

struct PortableGradWeightTile {
  int32_t instance;  // index into kPortableGradWeightInstances
  int32_t stages;  // of pixels, in shared memory
  int32_t chunks;  // of a launch's pixels
  bool packs_x, packs_gy;  // which do not lie as pixels
  int32_t images;  // of a launch: a large batch takes several, as operands are packed in parts

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("stages", stages);
    field("chunks", chunks);
    field("packs_x", packs_x);
    field("packs_gy", packs_gy);
    field("images", images);
  }
};

inline constexpr int32_t kPortableWeightThreads = 128;
inline constexpr int32_t kPortableWeightStageBytes = 64;  // of each channel: two steps of K

struct PortableGradWeightLayout {
  Axis h, w;
  Pixels x, gy;
  int32_t images;  // of a launch
  int32_t image_pixels;  // of the input
  int32_t num_pixels;  // of a launch
  int32_t chunk_pixels;  // whole stages
  FastDivmod by_columns, by_rows;  // a pixel's number: image, row, column
  // A CTA's number: chunk, group, tile of input channels, tile of output channels, tap row, tap.
  FastDivmod by_chunks, by_groups, by_x_tiles, by_gy_tiles, by_kernel_h, by_kernel_w;
  int32_t stages, shared_bytes, threads;
  int64_t num_blocks;
  int32_t num_slabs;  // of all launches
  int64_t slab_elements, slab_bytes;  // of one, of all
  int64_t x_bytes, gy_bytes;  // of what is packed
};

// False where the tile has no kernel for the problem, or 32 bits do not hold the numbers.
bool make_portable_grad_weight_layout(const ConvTProblem& problem, const PortableGradWeightTile& tile,
                                      PortableGradWeightLayout* layout);

}  // namespace convt
