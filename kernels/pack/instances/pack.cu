#include "pack/pixels.cuh"
#include "pack/rows.cuh"
#include "plan/kernel_table.h"

namespace convt::pack {

const void* pack_pixels(DataType dtype) {
  if (dtype == DataType::kFloat32) return CONVT_KERNEL(pack_pixels<float>);
  return CONVT_KERNEL(pack_pixels<__half>);  // also for bfloat16: only bits are moved
}

const void* pack_rows(DataType dtype) {
  return dtype == DataType::kFloat32 ? CONVT_KERNEL(pack_rows<float>) : CONVT_KERNEL(pack_rows<uint16_t>);
}

}  // namespace convt::pack
