// Gathers the source if no tensor map can describe it: NCHW, channels not aligned to 16 bytes, or any address. Warps
// copy it word by word to a slot, in the layout of a TMA copy. Must not know: how a stage is used.
#pragma once

#include "nhwc_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/operand_layout.cuh"
#include "ptx/shared.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

// One warp of kNhwcGatheringWarps. It copies 32 places of a box at a time. float32 elements are copied directly to the
// slot. cp.async cannot copy 2 bytes, so each half is copied within its aligned word to a private buffer. While the
// next batch is in flight, the same thread writes the previous batch to the slot.
template <typename Shape>
class Gatherer {
 public:
  __device__ __forceinline__ Gatherer(const Params& params, uint32_t s_source, const pipeline::Ring& sources,
                                      int32_t warp)
      : params_(params),
        sources_(sources),
        s_source_(s_source),
        s_words_(s_source + params.bias_begin + 4 * Shape::kN + (warp * 32 + lane()) * 4),
        first_place_(32 * warp),
        places_of_all_((params.num_places + kThreads - 1) / kThreads * kThreads) {}

  // Gathers channel chunk `chunk` of a window's box of a tile.
  __device__ __forceinline__ void gather(const Tile& tile, const Window& window, int32_t chunk) {
    const Box box{tile.column * params_.step_w + window.column, tile.row * params_.step_h + window.row, tile.image,
                  tile.group, chunk * Shape::kStageChannels};
    if constexpr (kWords) sources_.wait_empty();  // the consumers have released the slot
#pragma unroll 1
    for (int32_t place = first_place_; place < places_of_all_; place += kThreads) {
#pragma unroll 1
      for (int32_t vector = 0; vector < kVectors; vector += kItems) {
        const uint32_t halves = copy(box, place, vector);
        if constexpr (!kWords) {
          ptx::cp_async_commit();
          if (is_waiting_) {
            ptx::cp_async_wait<1>();
            write(waiting_);
          }
          waiting_ = {place, vector, halves, lasts_, place + kThreads >= places_of_all_ && vector + kItems == kVectors};
          lasts_ = 0;
          is_waiting_ = true;
          buffer_ ^= 1;
        }
      }
    }
    if constexpr (kWords) {
      ptx::mbarrier_arrive_after_copies(sources_.full());
      sources_.advance();
    }
  }

  // Call after the last stage.
  __device__ __forceinline__ void finish() {
    ptx::cp_async_wait<0>();
    if constexpr (!kWords) {
      if (is_waiting_) write(waiting_);
    }
  }

 private:
  using Element = typename Shape::Element;
  static constexpr bool kWords = sizeof(Element) == 4;  // elements are words
  static constexpr int kVector = 16 / Shape::kElement;  // elements
  static constexpr int kVectors = Shape::kRowBytes / 16;  // per place
  static constexpr int kItems = kNhwcGatheredWords / kVector;  // 16-byte vectors per batch and thread
  static constexpr int kThreads = kNhwcGatheringThreads;
  static_assert(kVectors % kItems == 0 && 32 % kItems == 0 && kNhwcGatheredWords <= 32);

  struct Box {
    int32_t column, row, image;  // source coordinates of the first place
    int32_t group, channel;      // first channel, within the group
  };
  struct Batch {
    int32_t place, vector;  // first place and vector
    uint32_t halves;        // bit j: the first element of item j is in the upper half of its word
    uint32_t lasts;         // bit i: word i contains the tensor's last element and must not be copied
    bool ends_stage;
  };

  __device__ __forceinline__ static int32_t lane() { return static_cast<int32_t>(threadIdx.x % 32); }

  // Place and vector of a thread's item j of a batch.
  __device__ __forceinline__ int32_t place_of(int32_t first, int j) const {
    return first + (params_.channels_inner ? j * (32 / kItems) + lane() / kItems : lane());
  }
  __device__ __forceinline__ int32_t vector_of(int32_t first, int j) const {
    return first + (params_.channels_inner ? lane() % kItems : j);
  }
  __device__ __forceinline__ uint32_t words_of(int j, uint32_t buffer) const {
    return s_words_ + (buffer * kNhwcGatheredWords + j * kVector) * kThreads * 4;
  }
  __device__ __forceinline__ uint32_t slot_of(int32_t place, int32_t vector) const {
    return s_source_ + sources_.slot() * params_.stage_bytes + place * Shape::kRowBytes +
           ptx::tensor_swizzle(Shape::kRowBytes, place, vector) * 16;
  }

  // Address of a place's first channel, and its channels in the chunk: none if the place is outside the source.
  struct Place {
    uintptr_t begin;
    int32_t channels;
  };
  __device__ __forceinline__ Place find(const Box& box, int32_t place) const {
    int32_t column, row;
    int32_t image = params_.by_box_h(params_.by_box_w(place, &column), &row);
    column = box.column + column * params_.step_w;
    row = box.row + row * params_.step_h;
    image += box.image;
    const bool exists = place < params_.num_places && image < params_.batch &&
                        static_cast<uint32_t>(row) < static_cast<uint32_t>(params_.source_h) &&
                        static_cast<uint32_t>(column) < static_cast<uint32_t>(params_.source_w);
    const int64_t channel = int64_t{box.group} * params_.k_channels + box.channel;
    return {reinterpret_cast<uintptr_t>(params_.source) + image * params_.source_step[0] +
                channel * params_.source_step[1] + row * params_.source_step[2] + column * params_.source_step[3],
            exists ? params_.k_channels - box.channel : 0};
  }

  // Issues the copies of a batch. Returns which items start in upper halves. The instructions per word determine the
  // throughput: few warps gather, and each instruction waits for the previous one.
  __device__ __forceinline__ uint32_t copy(const Box& box, int32_t first_place, int32_t first_vector) {
    uint32_t halves = 0;
    if (params_.channels_inner) {
      const int32_t vector = vector_of(first_vector, 0);
#pragma unroll 2
      for (int j = 0; j < kItems; ++j) {
        const int32_t place = place_of(first_place, j);
        Place at = find(box, place);
        at.begin += vector * kVector * params_.source_step[1];
        halves |= copy_item(at.begin, at.channels - vector * kVector, j, place, vector);
      }
    } else {
      const int32_t place = place_of(first_place, 0);
      Place at = find(box, place);
      at.begin += first_vector * kVector * params_.source_step[1];
      at.channels -= first_vector * kVector;
#pragma unroll 4
      for (int j = 0; j < kItems; ++j) {
        halves |= copy_item(at.begin, at.channels, j, place, first_vector + j);
        at.begin += kVector * params_.source_step[1];
        at.channels -= kVector;
      }
    }
    return halves;
  }

  __device__ __forceinline__ uint32_t copy_item(uintptr_t begin, int32_t left, int j, int32_t place, int32_t vector) {
    if constexpr (kWords) {
      if (place < params_.num_places) copy_words<1>(slot_of(place, vector), begin, left, 0);
      return 0;
    } else {
      copy_words<kThreads>(words_of(j, buffer_), begin, left, j * kVector);
      copy_words<kThreads>(words_of(j, buffer_) + 4 * kThreads * 4, begin + 4 * params_.source_step[1], left - 4,
                           j * kVector + 4);
      return (static_cast<uint32_t>(begin) >> 1 & 1) << j;
    }
  }

  // Copies the words of four channels, `left` of which exist, to words with stride kStep; zeros for the others. `first`
  // is the index of the first channel in its batch.
  template <int kStep>
  __device__ __forceinline__ void copy_words(uint32_t s, uintptr_t begin, int32_t left, int first) {
    uint32_t shared[4];
    const void* global[4];
    bool copy[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uintptr_t address = begin + i * params_.source_step[1];
      shared[i] = s + i * kStep * 4;
      global[i] = reinterpret_cast<const void*>(kWords ? address : address & ~uintptr_t{3});
      copy[i] = i < left;
      if constexpr (!kWords) {
        // The tensor's last element may be the lower half of a word whose upper half is outside the tensor, so this
        // word must not be read. In an expanded tensor, many channels and places can be that element.
        if (params_.ends_in_word && copy[i] && address == params_.last_element) {
          copy[i] = false;
          lasts_ |= 1u << (first + i);
        }
      }
    }
    ptx::cp_async_4_bytes_or_zero(shared, global, copy);
  }

  // Writes a completed batch of halves to its slot, once the consumers have released it.
  __device__ __forceinline__ void write(const Batch& batch) {
    for (uint32_t lasts = batch.lasts; lasts != 0; lasts &= lasts - 1) {
      const uint32_t s = words_of(0, buffer_ ^ 1) + (__ffs(lasts) - 1) * kThreads * 4;
      ptx::store_shared(s, *reinterpret_cast<const uint16_t*>(params_.last_element));
    }
    sources_.wait_empty();
    const uint32_t odd = static_cast<uint32_t>(params_.source_step[1]) >> 1 & 1;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int32_t place = place_of(batch.place, j);
      const uint32_t s = words_of(j, buffer_ ^ 1);
      uint32_t words[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) words[i] = ptx::load_shared(s + i * kThreads * 4);
      // If the channel stride is odd, odd channels are in the other half of their words.
      const uint32_t first = batch.halves >> j & 1, second = first ^ odd;
      const uint32_t selector = (first != 0 ? 0x32u : 0x10u) | (second != 0 ? 0x7600u : 0x5400u);
      uint32_t vector[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        vector[i] = __byte_perm(words[2 * i % kVector], words[(2 * i + 1) % kVector], selector);
      if (place < params_.num_places) ptx::store_shared(slot_of(place, vector_of(batch.vector, j)), vector);
    }
    if (!batch.ends_stage) return;
    ptx::fence_proxy_async();  // wgmma may read the slot
    ptx::mbarrier_arrive(sources_.full());
    sources_.advance();
  }

  const Params& params_;
  pipeline::Ring sources_;
  const uint32_t s_source_, s_words_;
  const int32_t first_place_, places_of_all_;  // rounded up, so that all warps have the same number of batches
  uint32_t buffer_ = 0;  // buffer of the next batch
  uint32_t lasts_ = 0;  // same meaning as Batch::lasts
  Batch waiting_{};
  bool is_waiting_ = false;
};

// Called by all threads of a warp.
template <typename Shape>
__device__ __forceinline__ void gather_source(const Params& params, const Stages& stages_of_tiles, uint32_t s_source,
                                              const pipeline::Ring& sources, int32_t warp) {
  Gatherer<Shape> gatherer(params, s_source, sources, warp);
  for (UnitWalk units(params); units.exists(); units.advance()) {
    const auto [number, stages] = unit_of(params, stages_of_tiles, units.number());
    const Tile tile = tile_of(params, number);
    StageWalk walk = stages.walk(first_window(params, tile));
    for (int32_t stage = stages.begin; stage < stages.end; ++stage, walk.advance(params)) {
      const Window& window = params.windows[walk.window];
      if (window.num_h > 0) gatherer.gather(tile, window, walk.chunk);
    }
  }
  gatherer.finish();
}

#endif

}  // namespace convt::nhwc_sm90a
