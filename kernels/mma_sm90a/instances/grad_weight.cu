#include "mma_sm90a/grad_weight.cuh"
#include "mma_sm90a/instances.h"
#include "plan/kernel_table.h"

namespace convt::mma_sm90a {

const void* grad_weight_kernel_of(int32_t instance) {
  return find_kernel<kMmaGradWeightInstances>(instance, [](auto row) {
    using Traits = GradWeightTraits<row->dtype, row->row_tiles, row->column_tiles, row->operands>;
    return CONVT_KERNEL(grad_weight<Traits>);
  });
}

}  // namespace convt::mma_sm90a
