// Division by a divisor that is known before the launch, without a division instruction on the device.
#pragma once

#include <cstdint>

#include "problem/phases.h"

namespace convt {

// Divides numbers in [0, 2^31) with one multiplication and one 64-bit shift.
struct FastDivmod {
  int32_t value;
  uint32_t magic;  // ceil(2^shift / value). The rounding error times any number below 2^31 stays below 2^shift.
  int32_t shift;

  static FastDivmod of(int32_t value) {
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

// Divides nonnegative numbers whose product with the divisor is below 2^32, such as positions of a tile in shared
// memory. Uses the high half of one multiplication.
struct SmallDivmod {
  int32_t value;
  uint32_t reciprocal;  // rounded up

  CONVT_HOST_DEVICE static SmallDivmod of(int32_t value) {
    return {value, 0xffffffffu / static_cast<uint32_t>(value) + 1};
  }

  CONVT_HOST_DEVICE int32_t operator()(int32_t number) const {
    return value == 1 ? number : static_cast<int32_t>(uint64_t{static_cast<uint32_t>(number)} * reciprocal >> 32);
  }
  CONVT_HOST_DEVICE int32_t operator()(int32_t number, int32_t* remainder) const {
    const int32_t quotient = (*this)(number);
    *remainder = number - quotient * value;
    return quotient;
  }
};

// Splits a nonnegative number into mixed-radix digits. next(count) returns the next digit in [0, count), fastest first.
struct Digits {
  int32_t rest;  // the digits that follow

  CONVT_HOST_DEVICE int32_t next(int32_t count) {
    const int32_t digit = rest % count;
    rest /= count;
    return digit;
  }
};

}  // namespace convt
