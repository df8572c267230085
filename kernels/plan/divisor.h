// Division by a number that the host knows, without a division on the device: of any number by a multiplication and a
// shift of 64 bits, of a small one by the high half of a multiplication.
#pragma once

#include <cstdint>

#include "problem/phases.h"

namespace convt {

// Of numbers from 0 to below 2^31.
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

// Takes a number from 0 on apart: next(count) is its digit of `count` values, the fastest digit first.
struct Digits {
  int32_t rest;  // what is left for the digits to come

  CONVT_HOST_DEVICE int32_t next(int32_t count) {
    const int32_t digit = rest % count;
    rest /= count;
    return digit;
  }
};

// Of numbers from 0 on whose product with the divisor is below 2^32.
struct Reciprocal {
  int32_t divisor;
  uint32_t reciprocal;  // rounded up

  static Reciprocal of(int32_t divisor) { return {divisor, 0xffffffffu / static_cast<uint32_t>(divisor) + 1}; }
};

CONVT_HOST_DEVICE inline int32_t quotient(int32_t number, const Reciprocal& by) {
  return by.divisor == 1 ? number : static_cast<int32_t>(uint64_t{static_cast<uint32_t>(number)} * by.reciprocal >> 32);
}

}  // namespace convt
