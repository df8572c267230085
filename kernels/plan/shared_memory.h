// Lays out the shared memory of a CTA during planning.
// Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "problem/phases.h"

namespace convt {

// Allocates consecutive regions and returns their byte offsets. Layouts do not add offsets themselves: a region that is
// added or resized then moves all regions after it, and no region overlaps another. A region that two kernel phases use
// for different data is allocated once, with the larger size.
//
// Searches also lay out tiles that are far too large. Bytes are therefore counted in 64 bits, and fits() must be
// checked before offsets of such a tile are used.
class SharedMemory {
 public:
  static constexpr int64_t kMostBytes = 1 << 20;  // far more than any GPU has

  // `used`: bytes before the first region.
  explicit SharedMemory(int64_t used = 0) : bytes_(used) {}

  // Appends a region whose offset is a multiple of `alignment`, and returns this offset.
  int32_t take(int64_t bytes, int32_t alignment = 1) {
    const int64_t begin = round_up(bytes_, alignment);
    bytes_ = begin + bytes;
    return static_cast<int32_t>(begin);
  }

  // Whether offsets are within 32 bits. Does not compare with a GPU's limit.
  bool fits() const { return bytes_ <= kMostBytes; }

  // Bytes of all regions, or INT32_MAX if they are more.
  int32_t bytes() const { return static_cast<int32_t>(bytes_ < INT32_MAX ? bytes_ : INT32_MAX); }

 private:
  int64_t bytes_;
};

}  // namespace convt
