// The source where no tensor map describes it: in NCHW, with channels between multiples of 16 bytes, at any address.
// Warps copy it word by word to a stage's slot, as a tensor map would have. Must not know: what becomes of a stage.
#pragma once

#include "nhwc_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/operand_layout.cuh"
#include "ptx/shared.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

// What one warp of kNhwcGatheringWarps does. It takes 32 places of a box at a time. Elements of float32 go to their
// places in the slot. Halves are no words: each comes in the word that has it to the thread's own words, so many of
// them a batch, and while the next batch comes the one before is written to its slot, by the thread that copied it.
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

  // Chunk number `chunk` of the channels of the box that a window has of a tile.
  __device__ __forceinline__ void gather(const Tile& tile, const Window& window, int32_t chunk) {
    const Box box{tile.column * params_.step_w + window.column, tile.row * params_.step_h + window.row, tile.image,
                  tile.group, chunk * Shape::kStageChannels};
    if constexpr (kWords) sources_.wait_empty();  // the consumers have read what was here
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

  // Behind the last one.
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
  static constexpr int kVectors = Shape::kRowBytes / 16;  // of a place
  static constexpr int kItems = kNhwcGatheredWords / kVector;  // vectors of a thread's batch
  static constexpr int kThreads = kNhwcGatheringThreads;
  static_assert(kVectors % kItems == 0 && 32 % kItems == 0 && kNhwcGatheredWords <= 32);

  struct Box {
    int32_t column, row, image;  // of the source, of the first place
    int32_t group, channel;      // the first, of the group
  };
  struct Batch {
    int32_t place, vector;  // the first
    uint32_t halves;        // bit j: the first element of item j is the upper half of its word
    uint32_t lasts;         // bit i: word i is the tensor's last element, which no copy may bring
    bool ends_stage;
  };

  __device__ __forceinline__ static int32_t lane() { return static_cast<int32_t>(threadIdx.x % 32); }

  // Which place and vector of a batch is a thread's item j.
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

  // Where a place's first channel begins, and how many channels of the chunk it has: none where it is outside.
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

  // Asks for a batch; which of its items begin in upper halves. The fewer instructions a word takes, the faster the
  // source comes: few warps gather it, and each instruction waits for the one before.
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

  // The words of four channels, `left` of which exist, to words that are kStep apart; zeros for the others. `first` is
  // the first one's number in its batch.
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
        // The tensor's last element may be alone in its word, which must not be read then. Of an expanded tensor many
        // channels and places are that element.
        if (params_.ends_in_word && copy[i] && address == params_.last_element) {
          copy[i] = false;
          lasts_ |= 1u << (first + i);
        }
      }
    }
    ptx::cp_async_4_bytes_or_zero(shared, global, copy);
  }

  // Writes a batch of halves that is here to its slot, which the warps that multiply have left by then.
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
      // Odd channels begin in the other half if their distance is odd.
      const uint32_t first = batch.halves >> j & 1, second = first ^ odd;
      const uint32_t selector = (first != 0 ? 0x32u : 0x10u) | (second != 0 ? 0x7600u : 0x5400u);
      uint32_t vector[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        vector[i] = __byte_perm(words[2 * i % kVector], words[(2 * i + 1) % kVector], selector);
      if (place < params_.num_places) ptx::store_shared(slot_of(place, vector_of(batch.vector, j)), vector);
    }
    if (!batch.ends_stage) return;
    ptx::fence_proxy_async();  // products may read it by descriptors
    ptx::mbarrier_arrive(sources_.full());
    sources_.advance();
  }

  const Params& params_;
  pipeline::Ring sources_;
  const uint32_t s_source_, s_words_;
  const int32_t first_place_, places_of_all_;  // the same number of batches for all warps
  uint32_t buffer_ = 0;  // of the next batch
  uint32_t lasts_ = 0;  // as the batch's
  Batch waiting_{};
  bool is_waiting_ = false;
};

// By all threads of a warp.
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
