#include "portable/instances.h"
#include "portable/pack.cuh"

namespace convt::portable {

const void* pack_weights(DataType dtype) {
  if (dtype == DataType::kFloat32) return CONVT_KERNEL(pack_weights<float>);
  return CONVT_KERNEL(pack_weights<__half>);  // also for bfloat16: only bits are moved
}

}  // namespace convt::portable
