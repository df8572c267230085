#include "plan/kernel_table.h"
#include "simt/grad_weight.cuh"
#include "simt/instances.h"

namespace convt::simt {

const void* grad_weight_kernel_of(int32_t instance) {
  return find_kernel<kGradWeightInstances>(instance, [](auto row) {
    using Traits = GradWeightTraits<row->dtype, row->thread_ci, row->thread_co, row->thread_kw>;
    return CONVT_KERNEL(grad_weight_kernel<Traits>);
  });
}

}  // namespace convt::simt
