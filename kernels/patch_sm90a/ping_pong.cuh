// The patch engine's kernel for 2 x 2 kernels whose weights stay in shared memory: two warpgroups alternate
// (ping-pong), so that the tensor cores have one's products while the other's results leave by way of shared memory.
// These are staged as they lie in the result, some channels at a time, so that a warp stores whole runs.
#pragma once

#include "hopper/kernel.cuh"
#include "patch_sm90a/epilogue.cuh"
#include "patch_sm90a/mainloop.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// One thread: all weights of the CTA's columns, once. Packed blocks of 64 channels of a tap become planes of all
// columns, those of a tap behind those of the one before.
template <typename Shape>
__device__ __forceinline__ void load_column_weights(const Params& params, uint32_t s_weights, uint32_t s_barriers) {
  constexpr int kPlanes = 2 * Shape::kSteps, kRun = Shape::kChannels * 16;
  constexpr int kPackedPlane = kPatchChannels * 16, kPackedBlock = kPlanes * kPackedPlane;
  const Tile tile = tile_of<Shape>(params, first_tile<Shape>(params));
  const int32_t first = tile.channel_tile * Shape::kChannels;
  const char* g_chunk =
      static_cast<const char*>(params.packed) +
      (int64_t{tile.group} * params.channel_blocks + first / kPatchChannels) * params.packed_tile_step +
      first % kPatchChannels * 16;
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, g_chunk += 2 * kPackedBlock) {
    const uint32_t barrier = s_barriers + 16 * chunk;
    ptx::mbarrier_expect(barrier, Shape::kChunkBytes);
#pragma unroll
    for (int tap = 0; tap < kPatchTaps; ++tap) {
      const char* g_tap = g_chunk + tap / 2 * params.packed_row_step + tap % 2 * kPackedBlock;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        ptx::bulk_copy(s_weights + chunk * Shape::kChunkBytes + plane * Shape::kPlaneBytes + tap * kRun,
                       g_tap + plane * kPackedPlane, kRun, barrier);
      }
    }
  }
}

// All products of a tile. Those of a step of K are in flight while the fragments of the next step are made. `s_next` is
// the other warpgroup's barrier, on which it waits to multiply.
template <typename Shape>
__device__ __forceinline__ void multiply_ping_pong(Accumulators<Shape>& acc, const Params& params, bool first_tile,
                                                   uint32_t s_mine, uint32_t s_weights, uint32_t s_weight_barriers,
                                                   uint32_t s_next, Ring* sources) {
  constexpr int kRows = Shape::kRowBlocks, kSteps = Shape::kSteps;
  uint32_t fragments[kSteps][kRows][4], words[kSteps][kRows][4];
  element::clear(acc.r);
  const auto load = [&] {
    sources->wait_full();
    const uint32_t s_stage = s_mine + sources->slot() * Shape::kStageBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        load_pairs<Shape>(words[step][row], s_stage + row * kPatchPositions * Shape::kElement, step);
      }
    }
    pipeline::release(sources->empty());
    sources->advance();
  };
  load();
  ptx::MatrixDescriptor b = ptx::MatrixDescriptor::of(s_weights, Shape::kPlaneBytes, 128);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    if (first_tile) ptx::mbarrier_wait(s_weight_barriers + 16 * chunk, 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::wgmma_wait<1>();  // the products of these fragments
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        element::keep(fragments[step][row]);
        to_operand<Shape>(fragments[step][row], words[step][row], 0);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int block = 0; block < Shape::kColumnBlocks; ++block) {
          ptx::wgmma<typename Shape::Element>(acc.r[row * Shape::kColumnBlocks + block], fragments[step][row],
                                              b.moved(step * 2 * (Shape::kPlaneBytes / 16) + block * 128), true);
        }
      }
      ptx::wgmma_commit();
    }
    b = b.moved(Shape::kChunkBytes / 16);
    if (chunk + 1 < params.num_chunks) load();  // while these products run
  }
  if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(s_next);  // the other warpgroup may multiply
  ptx::wgmma_wait<0>();
  element::keep(fragments);
}

// How a warpgroup stores its tiles.
template <typename Shape>
class RowStore {
  using Element = typename Shape::Element;
  static constexpr int kElement = Shape::kElement;
  static constexpr int kOfPass = ping_pong_staged_channels(kElement);
  static constexpr int kBlocks = kOfPass / 8;  // of 8 channels
  static constexpr int kVectors = Shape::kStagePositions * kPatchTaps * kElement / 16;  // of a channel
  static constexpr int kTogether = 128 / kVectors;  // channels that threads store at a time
  static constexpr int kPitch = ping_pong_staged_pitch(kElement);

 public:
  __device__ __forceinline__ RowStore(const Params& params, uint32_t s_staged, uint32_t s_bias, uint32_t s_store,
                                      int32_t consumer)
      : s_staged_(s_staged), s_store_(s_store), consumer_(consumer) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), width = min(params.by_row.value, params.step);
    run_ = 2 * width * kElement;
    s_bias_ = s_bias + lane % 4 * 8;
#pragma unroll
    for (int row = 0; row < Shape::kRowBlocks; ++row) {
      const int32_t position = position_of_thread<Shape>(0) + row * kPatchPositions;
      int32_t column;
      const int32_t of_tile = params.whole_rows ? params.by_row(position, &column) : (column = position, 0);
      exists_[row] = position < params.step;
      s_place_[row] = s_staged + lane % 4 * 2 * kPitch + of_tile * 2 * run_ + column * 2 * kElement;
    }
  }

  template <bool kSteps>
  __device__ __forceinline__ void store_tile(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                             uint32_t parity) const {
    ptx::mbarrier_wait(s_store_ + 8 * consumer_, parity);  // the other warpgroup has read its results
    const Vectors mine = vectors_of(params, tile);
#pragma unroll
    for (int pass = 0; pass < Shape::kChannels / kOfPass; ++pass) {
      const int32_t buffer = pass % 2 * kOfPass * kPitch;
      stage(acc, pass, buffer);
      ptx::named_barrier(1 + consumer_, 128);  // staged, and the buffer after this one has been read
      constexpr int kCount = 16 / kElement;
      constexpr int kRuns = epilogue::runs_together(kCount, kOfPass / kTogether);
      static_assert(kOfPass / kTogether % kRuns == 0);
#pragma unroll
      for (int k = 0; k < kOfPass; k += kRuns * kTogether) {
        uint32_t words[kRuns][4];
        epilogue::Places<kRuns> places;
#pragma unroll
        for (int i = 0; i < kRuns; ++i) {
          const int32_t of_tile = k + i * kTogether, channel = pass * kOfPass + of_tile;
          const auto* g = reinterpret_cast<const Element*>(mine.g_first) + channel * params.result_stride[1];
          ptx::load_shared(words[i], mine.s_first + buffer + of_tile * kPitch);
          places.channel[i] = (tile.group + 1) * params.n_channels - mine.channels + channel;
          places.left[i] = channel < mine.channels ? kCount : 0;
          places.offset[i] = g - static_cast<Element*>(params.result);
        }
        if constexpr (kSteps) {
          Element elements[kRuns * kCount];
          memcpy(elements, words, sizeof(words));
          epilogue::run_elements<Element, kRuns, kCount>(params.steps, places, true, elements);
          memcpy(words, elements, sizeof(words));
        }
#pragma unroll
        for (int i = 0; i < kRuns; ++i) {
          if (places.left[i] <= 0) continue;
          auto* g = reinterpret_cast<uint4*>(static_cast<Element*>(params.result) + places.offset[i]);
          *g = uint4{words[i][0], words[i][1], words[i][2], words[i][3]};
        }
      }
    }
    pipeline::release(s_store_ + 8 * (consumer_ ^ 1));
  }

 private:
  __device__ __forceinline__ void stage(const Accumulators<Shape>& acc, int pass, int32_t buffer) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int j = pass * kBlocks + block;
      float bias[2];
      ptx::load_shared<0>(bias, s_bias_ + 8 * j * 4);
#pragma unroll
      for (int row = 0; row < Shape::kRowBlocks; ++row) {
        if (!exists_[row]) continue;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int tap_h = 0; tap_h < 2; ++tap_h) {
            Element both[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              const int column = (tap_h * 2 + k % 2) * (Shape::kChannels / 8) + j;  // of 8
              const float sum = acc.r[row * Shape::kColumnBlocks + column / 16][column % 16 * 4 + k / 2 * 2 + i];
              both[k] = element::to_element<Element>(epilogue::finish(sum, bias[i]));
            }
            uint32_t words[kElement];
            memcpy(words, both, sizeof(both));
            ptx::store_shared(s_place_[row] + buffer + (8 * block + i) * kPitch + tap_h * run_, words);
          }
        }
      }
    }
  }

  // What a thread stores: a vector of every so many channels.
  struct Vectors {
    int32_t channels;  // of the result, from the thread's first on; 0 where it has no such vector
    uint32_t s_first;
    char* g_first;
  };

  __device__ __forceinline__ Vectors vectors_of(const Params& params, const Tile& tile) const {
    const int32_t thread = static_cast<int32_t>(threadIdx.x % 128);
    const int32_t of_channel = thread % kVectors * 16, channel = thread / kVectors;
    int32_t column, row, of_row = of_channel;
    int32_t image = params.by_rows(params.by_row(tile.begin, &column), &row);
    bool exists = of_channel < params.step * kPatchTaps * kElement;
    int32_t pair = 0;  // of the tile's rows of the result
    while (of_row >= 2 * run_) of_row -= 2 * run_, ++pair;
    if (params.whole_rows) {
      row += pair;
      while (row >= params.by_rows.value) row -= params.by_rows.value, ++image;
    }
    exists = exists && image < params.batch;
    const int32_t tap_h = of_row >= run_;
    const int32_t first = tile.channel_tile * Shape::kChannels + channel;
    Vectors mine;
    mine.channels = exists ? params.n_channels - first : 0;
    mine.s_first = s_staged_ + channel * kPitch + of_channel;
    mine.g_first =
        static_cast<char*>(params.result) +
        (image * params.result_stride[0] + (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1] +
         (2 * row + tap_h) * params.result_stride[2] + 2 * column) *
            kElement +
        (of_row - tap_h * run_);
    return mine;
  }

  uint32_t s_staged_, s_bias_, s_store_;
  uint32_t s_place_[Shape::kRowBlocks];
  bool exists_[Shape::kRowBlocks];
  int32_t consumer_, run_;  // bytes of a row of the result
};

#endif

template <typename Shape>
struct Convolution;

template <typename Traits>
struct Convolution<PingPongShape<Traits>> {
  using Params = patch_sm90a::Params;
  using Shape = PingPongShape<Traits>;
  // Registers: 2 * 216 + 72 = 3 * 168.
  static constexpr hopper::Roles kRoles{patch_threads(2), 1, 2, 216, 72};

#ifdef CONVT_HAS_WGMMA
  const Params& params;
  const uint32_t s_source, s_weights, s_staged, s_barriers, s_weight_barriers;
  const uint32_t s_multiply, s_store;  // the barriers of each warpgroup, on which it waits to multiply and to store
  const uint32_t s_bias;

  __device__ __forceinline__ Convolution(const Params& params, const unsigned char* s_bytes)
      : params(params),
        s_source(ptx::shared_address(s_bytes)),
        s_weights(s_source + params.weights_begin),
        s_staged(s_source + params.staged_begin),
        s_barriers(s_source + params.barriers_begin),
        s_weight_barriers(s_barriers + 16 * params.source_slots),
        s_multiply(s_weight_barriers + 16 * params.weight_slots),
        s_store(s_multiply + 16),
        s_bias(s_store + 16) {}

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x == 0) {
      pipeline::init_slots(s_barriers, 0, params.source_slots, 32, 4);  // of one warp, and one warpgroup
      for (int32_t slot = 0; slot < params.weight_slots; ++slot) ptx::mbarrier_init(s_weight_barriers + 16 * slot, 1);
      for (int consumer = 0; consumer < 2; ++consumer) {
        ptx::mbarrier_init(s_multiply + 8 * consumer, 1);
        ptx::mbarrier_init(s_store + 8 * consumer, 4);
      }
      ptx::fence_mbarrier_init();
    }
    if (threadIdx.x < Shape::kChannels) {
      const Tile tile = tile_of<Shape>(params, first_tile<Shape>(params));
      const float bias = epilogue::bias_of<typename Shape::Element>(
          params, tile.group, params.n_channels,
          tile.channel_tile * Shape::kChannels + static_cast<int32_t>(threadIdx.x));
      ptx::store_shared(s_bias + threadIdx.x * 4, __float_as_uint(bias));
    }
  }

  __device__ __forceinline__ void take_part() const {}

  __device__ __forceinline__ void consume(int32_t warp) const {
    const int32_t consumer = warp / 4;
    Ring sources(s_barriers, params.source_slots);
    if (consumer == 1) sources.advance(params.num_chunks);
    const RowStore<Shape> store(params, s_staged, s_bias, s_store, consumer);
    const uint32_t s_mine = s_source + words_begin<Shape>(0);
    const int32_t step = tile_step();
    uint32_t parity = consumer == 0;  // of both barriers: the first warpgroup need not wait
    for (int32_t number = first_tile<Shape>(params) + consumer * step; number < params.num_tiles; number += 2 * step) {
      const Tile tile = tile_of<Shape>(params, number);
      Accumulators<Shape> acc;
      // Vectors of the source may begin before the tile.
      const int32_t lead = tile.begin & params.vector_mask;
      // The other warpgroup has had all stages before these: a slot's barrier tells no more than odd from even.
      ptx::mbarrier_wait(s_multiply + 8 * consumer, parity);
      multiply_ping_pong<Shape>(acc, params, number < 2 * step, s_mine + lead * Shape::kElement, s_weights,
                                s_weight_barriers, s_multiply + 8 * (consumer ^ 1), &sources);
      sources.advance(params.num_chunks);  // the other warpgroup's
      if (params.steps.num_steps == 0) {
        store.template store_tile<false>(acc, params, tile, parity);
      } else {
        store.template store_tile<true>(acc, params, tile, parity);
      }
      parity ^= 1;
    }
  }

  __device__ __forceinline__ void serve(int32_t warp) const {
    ptx::wait_for_previous_kernel();  // which packs; consumers touch nothing before their first stage is here
    if (warp == kPingPongLoaderWarps - 1) {
      if (ptx::elect_one()) load_column_weights<Shape>(params, s_weights, s_weight_barriers);
      __syncwarp();
    }
    with_copy_bytes<Shape::kElement>(
        params, [&](auto bytes) { load_stages<Shape, decltype(bytes)::value>(params, s_source, s_barriers, warp); });
  }
#endif
};

}  // namespace convt::patch_sm90a
