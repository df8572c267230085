// Division of many small numbers by one: multiply by the rounded-up reciprocal. Exact for
// 0 <= number, 1 <= divisor and number * divisor < 2^32, which positions of a shared-memory tile satisfy.
#pragma once

#include <cstdint>

namespace convt::element {

class FastDivide {
 public:
  __device__ __forceinline__ explicit FastDivide(int32_t divisor)
      : divisor_(divisor), reciprocal_(0xffffffffu / static_cast<uint32_t>(divisor) + 1) {}

  __device__ __forceinline__ int32_t operator()(int32_t number, int32_t* remainder) const {
    const int32_t quotient =
        divisor_ == 1 ? number : static_cast<int32_t>(__umulhi(static_cast<uint32_t>(number), reciprocal_));
    *remainder = number - quotient * divisor_;
    return quotient;
  }

 private:
  int32_t divisor_;
  uint32_t reciprocal_;
};

}  // namespace convt::element
