#include "mma_sm90a/instances.h"
#include "mma_sm90a/rows.cuh"
#include "plan/kernel_table.h"

namespace convt::mma_sm90a {

const void* rows_kernel_of(int32_t instance) {
  return find_kernel<kMmaRowsInstances>(instance, [](auto row) {
    return CONVT_KERNEL(forward_rows<RowsTraits<row->dtype, row->column_tiles, row->position_tiles>>);
  });
}

}  // namespace convt::mma_sm90a
