#include "thin/direct.cuh"
#include "thin/instances.h"

namespace convt::thin {

// Forward and the gradient of the input are one kernel.
#define CONVT_ROW(symbol, dtype, direction) \
  const void* symbol() { return reinterpret_cast<const void*>(&direct_kernel<simt::ElementOf<DataType::dtype>::type>); }
CONVT_THIN_DIRECT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::thin
