#include "correlate_sm90a/pack.cuh"

const void* convt::correlate_sm90a::pack_rows_of(DataType dtype) {
  return dtype == DataType::kFloat32 ? CONVT_KERNEL(pack_rows<float>) : CONVT_KERNEL(pack_rows<uint16_t>);
}
