// An operand tensor as *pixels*, whose channels can be read in 16-byte *vectors*. Each (image, row, column) contains
// the channels of all groups, with each group aligned to 16 bytes. Channels_last tensors often have this layout. Other
// tensors are packed first, with zeros after the last channel of a group. Must not know: torch, CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "problem/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

struct Pixels {
  int32_t channels;  // per group
  int32_t vectors;  // per group
  int32_t rows, columns;  // per image
  int64_t image_stride, row_stride, column_stride, group_stride;  // elements
};

inline int32_t elements_of_vector(DataType dtype) { return static_cast<int32_t>(16 / element_bytes(dtype)); }

// A tensor with `channels` channels in all groups and strides [image, channel, row, column], without packing.
inline Pixels pixels_of(const ConvTProblem& problem, int64_t channels, int32_t rows, int32_t columns,
                        const int64_t* stride) {
  const auto of_group = static_cast<int32_t>(channels / problem.groups);
  return {
      of_group, ceil_div(of_group, elements_of_vector(problem.dtype)), rows, columns, stride[0], stride[2], stride[3],
      of_group};
}

// The source of a forward pass or of a gradient of the input, without packing.
inline Pixels source_pixels(const ConvTProblem& problem) {
  return problem.direction == Direction::kForward
             ? pixels_of(problem, problem.c_in, problem.h.in, problem.w.in, problem.x_stride)
             : pixels_of(problem, problem.c_out, problem.h.out, problem.w.out, problem.y_stride);
}

// Elements of a packed pixel, all groups.
inline int64_t packed_pixel(const ConvTProblem& problem, const Pixels& pixels) {
  return problem.groups * pixels.vectors * elements_of_vector(problem.dtype);
}

// Whether a tensor aligned to 16 bytes already has the layout of pixels. Strides of axes of size 1 are ignored.
inline bool lies_as_pixels(const ConvTProblem& problem, const Pixels& pixels, int64_t channel_stride) {
  const int32_t vector = elements_of_vector(problem.dtype);
  const auto on_vectors = [vector](int64_t size, int64_t stride) { return size == 1 || stride % vector == 0; };
  return channel_stride == 1 && pixels.channels % vector == 0 && on_vectors(problem.batch, pixels.image_stride) &&
         on_vectors(pixels.rows, pixels.row_stride) && on_vectors(pixels.columns, pixels.column_stride);
}

// The layout of a tensor after packing.
inline Pixels packed_pixels(const ConvTProblem& problem, const Pixels& pixels) {
  Pixels packed = pixels;
  packed.group_stride = int64_t{pixels.vectors} * elements_of_vector(problem.dtype);
  packed.column_stride = packed_pixel(problem, pixels);
  packed.row_stride = packed.column_stride * pixels.columns;
  packed.image_stride = packed.row_stride * pixels.rows;
  return packed;
}

// Images per launch for this many packed bytes per image: limited by the workspace, and about equal in all launches.
inline int32_t images_of_launch(int64_t batch, int64_t packed_image_bytes) {
  constexpr int64_t kMostBytes = int64_t{256} << 20;
  const int64_t most = packed_image_bytes > 0 ? std::max<int64_t>(1, kMostBytes / packed_image_bytes) : batch;
  return static_cast<int32_t>(ceil_div(batch, ceil_div(batch, most)));
}
inline int64_t packed_image_bytes(const ConvTProblem& problem, const Pixels& packed) {
  return packed.image_stride * element_bytes(problem.dtype);
}

// Bytes of a workspace, rounded up to the alignment of the next one.
inline int64_t whole_workspace(int64_t bytes) { return round_up(bytes, 256); }

inline constexpr int32_t kPackTileThreads = 256;
inline constexpr int32_t kPackTilePixels = 64;  // pixels per CTA
inline constexpr int32_t kPackTileVectors = 8;  // vectors per pixel and CTA
inline constexpr int32_t kPackTileBytes = 16 * kPackTileVectors * (kPackTilePixels + 2);  // shared memory

}  // namespace convt

namespace convt::pack {

// Parameters of pack_pixels().
struct PackPixelsParams {
  const void* source;  // any strides
  void* packed;
  int64_t stride[4];  // strides of the source in elements: image, channel, row, column
  int32_t num_pixels;  // of all images
  int32_t channels;  // per group
  int32_t all_vectors;  // of all groups
  bool channels_inner;  // adjacent threads read adjacent channels, otherwise adjacent columns
  bool rounds;  // round float32 to TF32
  FastDivmod by_columns, by_rows, by_vector_tiles;
  FastDivmod by_group;  // splits a packed channel's index into group and channel
};

// The kernel for float32, or for 16-bit elements.
const void* pack_pixels(DataType dtype);

}  // namespace convt::pack
