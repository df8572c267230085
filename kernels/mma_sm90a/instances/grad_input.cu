#include "mma_sm90a/grad_input.cuh"
#include "mma_sm90a/instances.h"
#include "plan/kernel_table.h"

namespace convt::mma_sm90a {

const void* grad_input_kernel_of(int32_t instance) {
  return find_kernel<kMmaGradInputInstances>(instance, [](auto row) {
    using RowTraits = Traits<row->dtype, row->row_tiles, row->position_tiles, is_split(row->precision)>;
    return CONVT_KERNEL(grad_input<RowTraits>);
  });
}

}  // namespace convt::mma_sm90a
