#include "direct/instances.h"
#include "direct/kernel.cuh"

namespace convt::direct {

// Forward and the gradient of the input are one kernel.
template <typename Element, Direction kDirection>
const void* direct_function() {
  if constexpr (kDirection == Direction::kGradWeight) {
    return reinterpret_cast<const void*>(&direct_weight_kernel<Element>);
  } else {
    return reinterpret_cast<const void*>(&direct_kernel<Element>);
  }
}

#define CONVT_ROW(symbol, dtype, direction) \
  const void* symbol() { return direct_function<element::ElementOf<DataType::dtype>::type, Direction::direction>(); }
CONVT_THIN_DIRECT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::direct
