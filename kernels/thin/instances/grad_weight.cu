#include "plan/kernel_table.h"
#include "thin/grad_weight.cuh"
#include "thin/instances.h"
#include "thin/outer_weight.cuh"

namespace convt::thin {

const void* grad_weight_kernel_of(int32_t instance) {
  return find_kernel<kThinGradWeightInstances>(instance, [](auto row) {
    using Traits = GradWeightTraits<row->dtype, row->thread_ci, row->thread_co, row->thread_kw>;
    return CONVT_KERNEL(grad_weight_kernel<Traits>);
  });
}

const void* outer_weight_kernel_of(int32_t instance) {
  return find_kernel<kThinOuterWeightInstances>(instance,
                                                [](auto row) { return CONVT_KERNEL(outer_weight_kernel<row->width>); });
}

}  // namespace convt::thin
