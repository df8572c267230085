#include "pack/pixels.cuh"
#include "plan/kernel_table.h"

namespace convt::pack {

const void* pack_pixels(DataType dtype) {
  if (dtype == DataType::kFloat32) return CONVT_KERNEL(pack_pixels<float>);
  return CONVT_KERNEL(pack_pixels<__half>);  // also for bfloat16: only bits are moved
}

}  // namespace convt::pack
