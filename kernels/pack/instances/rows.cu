#include "pack/rows.cuh"
#include "plan/kernel_table.h"

namespace convt::pack {

const void* pack_rows(DataType dtype) {
  return dtype == DataType::kFloat32 ? CONVT_KERNEL(pack_rows<float>) : CONVT_KERNEL(pack_rows<uint16_t>);
}

}  // namespace convt::pack
