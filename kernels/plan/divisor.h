// Division of numbers below 2^31 by a divisor that the host knows: a multiplication and a shift on the device.
#pragma once

#include <cstdint>

#include "problem/phases.h"

namespace convt {

struct Divisor {
  int32_t value;
  uint32_t magic;  // ceil(2^shift / value): the excess times any number below 2^31 stays below 2^shift
  int32_t shift;

  static Divisor of(int32_t value) {
    int32_t log2 = 0;
    while ((int64_t{1} << log2) < value) ++log2;
    const int32_t shift = 31 + log2;
    return {value, static_cast<uint32_t>(((uint64_t{1} << shift) + value - 1) / value), shift};
  }

  CONVT_HOST_DEVICE int32_t operator()(int32_t number, int32_t* remainder) const {
    const auto quotient = static_cast<int32_t>(static_cast<uint64_t>(static_cast<uint32_t>(number)) * magic >> shift);
    *remainder = number - quotient * value;
    return quotient;
  }
};

}  // namespace convt
