#include "plan/kernel_table.h"
#include "thin/grad_weight.cuh"
#include "thin/instances.h"

namespace convt::thin {

const void* grad_weight_kernel_of(int32_t instance) {
  return find_kernel<kThinGradWeightInstances>(instance, [](auto row) {
    using Traits = GradWeightTraits<row->dtype, row->thread_ci, row->thread_co, row->thread_kw>;
    return CONVT_KERNEL(grad_weight_kernel<Traits>);
  });
}

}  // namespace convt::thin
