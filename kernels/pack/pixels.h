// An operand tensor as *pixels*, from which 16 bytes of channels can be read at once. For each (image, row, column) the
// channels of all groups, those of a group from a multiple of 16 bytes on; 16 bytes of channels are a *vector*.
// Channels_last tensors often lie so. Any other is packed first, with zeros behind the last channel of a group. Must
// not know: torch, CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

struct Pixels {
  int32_t channels;  // of a group
  int32_t vectors;  // of a group
  int32_t rows, columns;  // of an image
  int64_t image_stride, row_stride, column_stride, group_stride;  // elements
};

inline int32_t elements_of_vector(DataType dtype) { return static_cast<int32_t>(16 / element_bytes(dtype)); }

// A tensor of so many channels in all and [image, channel, row, column] strides, as it lies.
inline Pixels pixels_of(const ConvTProblem& problem, int64_t channels, int32_t rows, int32_t columns,
                        const int64_t* stride) {
  const auto of_group = static_cast<int32_t>(channels / problem.groups);
  return {
      of_group, ceil_div(of_group, elements_of_vector(problem.dtype)), rows, columns, stride[0], stride[2], stride[3],
      of_group};
}

// What a forward pass or a gradient of the input reads, as it lies.
inline Pixels source_pixels(const ConvTProblem& problem) {
  return problem.direction == Direction::kForward
             ? pixels_of(problem, problem.c_in, problem.h.in, problem.w.in, problem.x_stride)
             : pixels_of(problem, problem.c_out, problem.h.out, problem.w.out, problem.y_stride);
}

// Elements of a pixel of all groups, once packed.
inline int64_t packed_pixel(const ConvTProblem& problem, const Pixels& pixels) {
  return problem.groups * pixels.vectors * elements_of_vector(problem.dtype);
}

// Whether a tensor that begins on 16 bytes lies as pixels: the strides of axes of one element mean nothing.
inline bool lies_as_pixels(const ConvTProblem& problem, const Pixels& pixels, int64_t channel_stride) {
  const int32_t vector = elements_of_vector(problem.dtype);
  const auto on_vectors = [vector](int64_t size, int64_t stride) { return size == 1 || stride % vector == 0; };
  return channel_stride == 1 && pixels.channels % vector == 0 && on_vectors(problem.batch, pixels.image_stride) &&
         on_vectors(pixels.rows, pixels.row_stride) && on_vectors(pixels.columns, pixels.column_stride);
}

// How a tensor lies after it has been packed, and the bytes that it then takes.
inline Pixels packed_pixels(const ConvTProblem& problem, const Pixels& pixels) {
  Pixels packed = pixels;
  packed.group_stride = int64_t{pixels.vectors} * elements_of_vector(problem.dtype);
  packed.column_stride = packed_pixel(problem, pixels);
  packed.row_stride = packed.column_stride * pixels.columns;
  packed.image_stride = packed.row_stride * pixels.rows;
  return packed;
}

// Images of a launch that packs so many bytes of each: as many as a workspace should hold, and about as many in every
// launch.
inline int32_t images_of_launch(int64_t batch, int64_t packed_image_bytes) {
  constexpr int64_t kMostBytes = int64_t{256} << 20;
  const int64_t most = packed_image_bytes > 0 ? std::max<int64_t>(1, kMostBytes / packed_image_bytes) : batch;
  return static_cast<int32_t>(ceil_div(batch, ceil_div(batch, most)));
}
inline int64_t packed_image_bytes(const ConvTProblem& problem, const Pixels& packed) {
  return packed.image_stride * element_bytes(problem.dtype);
}

// Workspaces lie one behind another, each on a multiple of this.
inline int64_t whole_workspace(int64_t bytes) { return ceil_div(bytes, int64_t{256}) * 256; }

inline constexpr int32_t kPackTileThreads = 256;
inline constexpr int32_t kPackTilePixels = 64;  // of a CTA,
inline constexpr int32_t kPackTileVectors = 8;  // and vectors of each of them
inline constexpr int32_t kPackTileBytes = 16 * kPackTileVectors * (kPackTilePixels + 2);  // of shared memory

}  // namespace convt

namespace convt::pack {

// What pack_pixels() is launched with.
struct PackPixelsParams {
  const void* source;  // any strides
  void* packed;
  int64_t stride[4];  // of the source, in elements: image, channel, row, column
  int32_t num_pixels;  // of all images
  int32_t channels;  // of a group
  int32_t all_vectors;  // of all groups
  bool channels_inner;  // neighbouring threads read neighbouring channels, otherwise columns
  bool rounds;  // float32 to TF32
  FastDivmod by_columns, by_rows, by_vector_tiles;
  FastDivmod by_group;  // a packed channel's number: group, channel
};

// Of float32 or of 16-bit elements.
const void* pack_pixels(DataType dtype);

}  // namespace convt::pack
