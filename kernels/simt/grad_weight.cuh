// Gradient of the weight on CUDA cores, with a documented order of every sum (kernels/ORDER.md):
//     slab[ci, co, kh, kw] = sum over the slab's pixels (n, ih, iw), ascending, of
//                            x[n, ci, ih, iw] * grad_y[n, co, ih * stride - padding + kh * dilation, ...]
// One CTA computes the work unit of simt/grad_weight_layout.h. A thread accumulates thread_ci x thread_co channels x
// thread_kw taps. Each pixel and tap adds the outer product of two channel vectors. Launched by simt/launch.cpp.
#pragma once

#include "simt/grad_weight_layout.h"
#include "simt/grad_weight_loader.cuh"
#include "simt/mainloop.cuh"

namespace convt::simt {

template <DataType kDataType, int kThreadCiValue, int kThreadCoValue, int kThreadKwValue>
struct GradWeightTraits {
  using Element = typename ElementOf<kDataType>::type;
  using Accumulator = std::conditional_t<kDataType == DataType::kFloat64, double, float>;
  static constexpr int kCi = kThreadCiValue;
  static constexpr int kCo = kThreadCoValue;
  static constexpr int kKw = kThreadKwValue;
};

// A thread's share of the CTA's weights.
struct GradWeightWork {
  int32_t ci;     // first channel, within the tile
  int32_t co;
  int32_t kh;     // tap row, within the tile
  int32_t kw;     // first tap, within the tile
  int32_t split;
  bool idle;      // no weights: this thread only loads
};

template <typename Traits>
__device__ __forceinline__ GradWeightWork grad_weight_work(const GradWeightParams& params, const GradWeightTile& tile) {
  const SimtGradWeightTile& plan = params.plan;
  uint32_t index = threadIdx.x;
  auto next_digit = [&index](uint32_t count) {
    const uint32_t quotient = index / count;
    const int32_t digit = static_cast<int32_t>(index - quotient * count);
    index = quotient;
    return digit;
  };
  // Neighbouring lanes take neighbouring pixels, then output channels. Both are contiguous in shared memory.
  GradWeightWork work;
  work.split = next_digit(plan.splits);
  work.co = next_digit(plan.block_co / Traits::kCo) * Traits::kCo;
  work.ci = next_digit(plan.block_ci / Traits::kCi) * Traits::kCi;
  work.kw = next_digit(plan.block_runs) * Traits::kKw;
  work.kh = static_cast<int32_t>(index);
  work.idle = work.kh >= plan.block_kh || tile.kh_begin + work.kh >= params.problem.h.kernel ||
              tile.run_begin * Traits::kKw + work.kw >= params.problem.w.kernel ||
              tile.co_begin + work.co >= params.group_c_out || tile.ci_begin + work.ci >= params.group_c_in;
  return work;
}

// A tile of pixels. Tiles advance along W, then H, then the images.
struct PixelTile {
  int64_t image;
  int32_t h_begin;
  int32_t w_begin;

  __device__ __forceinline__ PixelTile(const GradWeightParams& params, int64_t index) {
    const int64_t row = index / params.grid.w_tiles;
    w_begin = static_cast<int32_t>(index - row * params.grid.w_tiles) << params.plan.tile_w_log2;
    image = row / params.grid.h_tiles;
    h_begin = static_cast<int32_t>(row - image * params.grid.h_tiles) * params.plan.tile_h;
  }

  __device__ __forceinline__ void advance(const GradWeightParams& params) {
    w_begin += 1 << params.plan.tile_w_log2;
    if (w_begin < params.problem.w.in) return;
    w_begin = 0;
    h_begin += params.plan.tile_h;
    if (h_begin < params.problem.h.in) return;
    h_begin = 0;
    ++image;
  }
};

// Coordinate in grad_output that a pixel's tap reads.
__device__ __forceinline__ int32_t output_coordinate(const Axis& axis, int32_t pixel, int32_t tap) {
  return pixel * axis.stride - axis.padding + tap * axis.dilation;
}

// Whether all pixels of the tile exist and all their taps begin .. end - 1 are inside grad_output.
__device__ __forceinline__ bool lies_inside(const Axis& axis, int32_t pixel, int32_t tile, int32_t tap_begin,
                                            int32_t tap_end) {
  return pixel + tile <= axis.in && output_coordinate(axis, pixel, tap_begin) >= 0 &&
         output_coordinate(axis, pixel + tile - 1, tap_end - 1) < axis.out;
}

// Lists the coordinates of grad_output's window positions relative to its element 0. All tiles of pixels share the
// list, because a lookup costs far less than the computation.
__device__ __forceinline__ void list_places(const GradWeightParams& params, Place* s_places) {
  const GradWeightLayout& layout = params.layout;
  for (int32_t position = threadIdx.x; position < layout.rows.extent * layout.columns.extent; position += blockDim.x) {
    const int32_t row = position / layout.columns.extent, column = position - row * layout.columns.extent;
    s_places[position] =
        Place{window_coordinate(layout.rows, params.problem.h, params.plan.tile_h, row),
              window_coordinate(layout.columns, params.problem.w, 1 << params.plan.tile_w_log2, column)};
  }
}

template <typename Traits>
__device__ __forceinline__ void load_pixels(const GradWeightParams& params, const GradWeightTile& tile,
                                            const PixelTile& pixels, const Place* s_places, uint32_t s_stage) {
  using Element = typename Traits::Element;
  const ConvTProblem& problem = params.problem;
  const GradWeightLayout& layout = params.layout;
  const int32_t w_log2 = params.plan.tile_w_log2;
  const int64_t first_ci = int64_t{tile.group} * params.group_c_in + tile.ci_begin;
  const int64_t first_co = int64_t{tile.group} * params.group_c_out + tile.co_begin;
  const int64_t volume = params.planes == 1 ? pixels.image : pixels.image / params.planes;
  const int64_t plane = pixels.image - volume * params.planes;
  load_window<Traits>(static_cast<const Element*>(params.x) + volume * params.x_volume + plane * problem.x_stride[0] +
                          first_ci * problem.x_stride[1],
                      problem.x_stride + 1, problem.h.in, problem.w.in, params.plan.tile_h << w_log2,
                      min(params.plan.block_ci, params.group_c_in - tile.ci_begin), layout.ci_pitch, s_stage,
                      [&](int32_t position) {
                        const int32_t row = position >> w_log2;
                        return Place{pixels.h_begin + row, pixels.w_begin + position - (row << w_log2)};
                      });
  const int32_t oh = output_coordinate(problem.h, pixels.h_begin, tile.kh_begin);
  const int32_t ow = output_coordinate(problem.w, pixels.w_begin, tile.run_begin * Traits::kKw);
  load_window<Traits>(static_cast<const Element*>(params.gy) + volume * params.gy_volume + plane * problem.y_stride[0] +
                          first_co * problem.y_stride[1],
                      problem.y_stride + 1, problem.h.out, problem.w.out, layout.rows.extent * layout.columns.extent,
                      min(params.plan.block_co, params.group_c_out - tile.co_begin), layout.co_pitch,
                      s_stage + layout.output_elems * sizeof(typename Traits::Accumulator), [&](int32_t position) {
                        const Place place = s_places[position];
                        return Place{oh + place.h, ow + place.w};
                      });
}

template <typename Traits>
using WeightAccumulators = typename Traits::Accumulator[Traits::kKw][Traits::kCi][Traits::kCo];

// Operands of one pixel: a vector of input channels, and one vector of output channels per tap.
template <typename Traits>
struct PixelOperands {
  typename Traits::Accumulator x[Traits::kCi];
  typename Traits::Accumulator y[Traits::kKw][Traits::kCo];

  __device__ __forceinline__ void read(uint32_t s_x, uint32_t s_y, uint32_t tap_step) {
    read_shared<Traits::kCi>(x, s_x);
#pragma unroll
    for (int t = 0; t < Traits::kKw; ++t) read_shared<Traits::kCo>(y[t], s_y + t * tap_step);
  }

  __device__ __forceinline__ void multiply_tap(WeightAccumulators<Traits>& r_acc, int t) const {
#pragma unroll
    for (int co = 0; co < Traits::kCo; ++co) {
#pragma unroll
      for (int i = 0; i < Traits::kCi; ++i) {
        const int ci = co % 2 == 0 ? i : Traits::kCi - 1 - i;  // consecutive products share an operand
        r_acc[t][ci][co] = fused_multiply_add(x[ci], y[t][co], r_acc[t][ci][co]);
      }
    }
  }
};

// Offsets of a thread's operands in a stage, in bytes.
struct PixelPlaces {
  uint32_t s_x, s_y;  // of pixel 0
  uint32_t x_step;    // bytes between pixels
  uint32_t y_row;     // bytes between rows
  uint32_t y_column;  // bytes between columns
  uint32_t tap_step;
  int32_t w_log2;

  __device__ __forceinline__ uint32_t x(int32_t pixel) const { return s_x + pixel * x_step; }
  __device__ __forceinline__ uint32_t y(int32_t pixel) const {
    const int32_t row = pixel >> w_log2;
    return s_y + row * y_row + (pixel - (row << w_log2)) * y_column;
  }
};

template <typename Traits>
__device__ __forceinline__ PixelPlaces pixel_places(const GradWeightParams& params, const GradWeightWork& work) {
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  const GradWeightLayout& layout = params.layout;
  const uint32_t column = layout.co_pitch * kBytes, row = layout.columns.extent * column;
  PixelPlaces places;
  places.s_x = work.ci * kBytes;
  places.s_y = layout.output_elems * kBytes + work.kh * layout.rows.step * row +
               work.kw * layout.columns.step * column + work.co * kBytes;
  places.x_step = layout.ci_pitch * kBytes;
  places.y_row = layout.rows.position_step * row;
  places.y_column = layout.columns.position_step * column;
  places.tap_step = layout.columns.step * column;
  places.w_log2 = params.plan.tile_w_log2;
  return places;
}

// Accumulates the thread's pixels of an interior tile. The next pixel's operands are read while the current ones are
// multiplied.
template <typename Traits>
__device__ __forceinline__ void multiply_inside(WeightAccumulators<Traits>& r_acc, const PixelPlaces& places,
                                                int32_t first, int32_t step, int32_t end, uint32_t s_stage) {
  PixelOperands<Traits> r_even, r_odd;
  auto read = [&](PixelOperands<Traits>& r_operands, int32_t pixel) {
    const int32_t existing = min(pixel, end - 1);
    r_operands.read(s_stage + places.x(existing), s_stage + places.y(existing), places.tap_step);
  };
  auto multiply_pixel = [&](const PixelOperands<Traits>& r_operands) {
#pragma unroll
    for (int t = 0; t < Traits::kKw; ++t) r_operands.multiply_tap(r_acc, t);
  };
  read(r_even, first);
#pragma unroll 1
  for (int32_t pixel = first; pixel < end; pixel += 2 * step) {  // each split has an even number of pixels
    read(r_odd, pixel + step);
    multiply_pixel(r_even);
    read(r_even, pixel + 2 * step);
    multiply_pixel(r_odd);
  }
}

// Accumulates the thread's pixels of a border tile. Pixels and taps outside the tensors are skipped.
template <typename Traits>
__device__ __forceinline__ void multiply_border(WeightAccumulators<Traits>& r_acc, const GradWeightParams& params,
                                                const GradWeightTile& tile, const PixelTile& pixels,
                                                const GradWeightWork& work, const PixelPlaces& places,
                                                uint32_t s_stage) {
  const Axis &h = params.problem.h, &w = params.problem.w;
  const int32_t end = params.plan.tile_h << places.w_log2;
#pragma unroll 1
  for (int32_t pixel = work.split; pixel < end; pixel += params.plan.splits) {
    const int32_t row = pixel >> places.w_log2, column = pixel - (row << places.w_log2);
    const int32_t ih = pixels.h_begin + row, iw = pixels.w_begin + column;
    const int32_t oh = output_coordinate(h, ih, tile.kh_begin + work.kh);
    if (ih >= h.in || iw >= w.in || static_cast<uint32_t>(oh) >= static_cast<uint32_t>(h.out)) continue;
    const int32_t ow = output_coordinate(w, iw, tile.run_begin * Traits::kKw + work.kw);
    PixelOperands<Traits> r_operands;
    r_operands.read(s_stage + places.x(pixel), s_stage + places.y(pixel), places.tap_step);
#pragma unroll
    for (int t = 0; t < Traits::kKw; ++t) {
      if (static_cast<uint32_t>(ow + t * w.dilation) < static_cast<uint32_t>(w.out)) r_operands.multiply_tap(r_acc, t);
    }
  }
}

// Output channels are innermost in a slab, so a thread's channels are contiguous and adjacent to those of neighbouring
// lanes.
template <typename Traits>
__device__ __forceinline__ void store_slab(const WeightAccumulators<Traits>& r_acc, const GradWeightParams& params,
                                           const GradWeightTile& tile, const GradWeightWork& work) {
  using Accumulator = typename Traits::Accumulator;
  struct alignas(sizeof(Accumulator) * Traits::kCo) Vector {
    Accumulator values[Traits::kCo];
  };
  const int32_t k_h = params.problem.h.kernel, k_w = params.problem.w.kernel;
  const int64_t slab = int64_t{tile.chunk} * params.plan.splits + work.split;
  const int32_t kh = tile.kh_begin + work.kh, kw = tile.run_begin * Traits::kKw + work.kw;
  const int32_t group_co = tile.co_begin + work.co;
  const bool whole = params.group_c_out % Traits::kCo == 0;
  auto* g_slab = static_cast<Accumulator*>(params.slabs) + slab * params.problem.c_in * params.group_c_out * k_h * k_w;
#pragma unroll
  for (int ci = 0; ci < Traits::kCi; ++ci) {
    const int32_t group_ci = tile.ci_begin + work.ci + ci;
    if (group_ci >= params.group_c_in) continue;
    const int64_t channel = int64_t{tile.group} * params.group_c_in + group_ci;
#pragma unroll
    for (int t = 0; t < Traits::kKw; ++t) {
      if (kw + t >= k_w) continue;
      Accumulator* g_sums = g_slab + ((channel * k_h + kh) * k_w + kw + t) * params.group_c_out + group_co;
      if (whole) {
        Vector vector;
#pragma unroll
        for (int co = 0; co < Traits::kCo; ++co) vector.values[co] = r_acc[t][ci][co];
        *reinterpret_cast<Vector*>(g_sums) = vector;
      } else {
#pragma unroll
        for (int co = 0; co < Traits::kCo; ++co) {
          if (group_co + co < params.group_c_out) g_sums[co] = r_acc[t][ci][co];
        }
      }
    }
  }
}

template <typename Traits>
__global__ void __launch_bounds__(kMaxGradWeightThreads)
    grad_weight_kernel(const __grid_constant__ GradWeightParams params) {
  extern __shared__ __align__(16) unsigned char s_bytes[];
  const uint32_t s_stages = ptx::shared_address(s_bytes);
  const uint32_t stage_bytes = params.layout.stage_elems * sizeof(typename Traits::Accumulator);
  const SimtGradWeightTile& plan = params.plan;
  const Axis &h = params.problem.h, &w = params.problem.w;

  const GradWeightTile tile = grad_weight_tile(params.grid, plan, blockIdx.x);
  const GradWeightWork work = grad_weight_work<Traits>(params, tile);
  const PixelPlaces places = pixel_places<Traits>(params, work);
  const int32_t tile_w = 1 << plan.tile_w_log2;
  const int32_t kh_end = min(tile.kh_begin + plan.block_kh, h.kernel);
  const int32_t kw_begin = tile.run_begin * Traits::kKw;
  const int32_t kw_end = min(kw_begin + plan.block_runs * Traits::kKw, w.kernel);

  WeightAccumulators<Traits> r_acc = {};

  auto* s_places = reinterpret_cast<Place*>(s_bytes + params.layout.places_bytes_begin);
  list_places(params, s_places);
  __syncthreads();  // the list is complete
  const int64_t begin = tile.chunk * plan.tiles_per_chunk;
  const int64_t end = min(begin + plan.tiles_per_chunk, params.grid.pixel_tiles);
  PixelTile pixels(params, begin), next = pixels;
  load_pixels<Traits>(params, tile, next, s_places, s_stages);
  ptx::cp_async_commit();
  uint32_t slot = 0;
  for (int64_t index = begin; index < end; ++index) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // this stage has arrived, and all threads have read the other one
    next.advance(params);
    if (index + 1 < end) {
      load_pixels<Traits>(params, tile, next, s_places, s_stages + (slot ^ 1) * stage_bytes);
      ptx::cp_async_commit();
    }
    if (!work.idle) {
      const uint32_t s_stage = s_stages + slot * stage_bytes;
      const bool inside = lies_inside(h, pixels.h_begin, plan.tile_h, tile.kh_begin, kh_end) &&
                          lies_inside(w, pixels.w_begin, tile_w, kw_begin, kw_end);
      if (inside) {
        multiply_inside<Traits>(r_acc, places, work.split, plan.splits, plan.tile_h << plan.tile_w_log2, s_stage);
      } else {
        multiply_border<Traits>(r_acc, params, tile, pixels, work, places, s_stage);
      }
    }
    pixels = next;
    slot ^= 1;
  }
  if (!work.idle) store_slab<Traits>(r_acc, params, tile, work);
}

}  // namespace convt::simt
