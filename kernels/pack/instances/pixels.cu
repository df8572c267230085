#include "pack/pixels.cuh"
#include "plan/kernel_table.h"

namespace convt::pack {

const void* pack_pixels(DataType dtype) {
  if (dtype == DataType::kFloat32) return CONVT_KERNEL(pack_pixels<float>);
  return CONVT_KERNEL(pack_pixels<__half>);  // bits of bfloat16 are moved as well
}

}  // namespace convt::pack
