#include "gather/direct.cuh"
#include "gather/instances.h"
#include "gather/kernel.cuh"
#include "plan/kernel_table.h"

namespace convt::gather {

const void* kernel_of(int32_t instance) {
  return find_kernel<kThinGatherInstances>(
      instance, [](auto row) { return CONVT_KERNEL(gather_kernel<row->channels, row->positions>); });
}

const void* direct_kernel_of(int32_t instance) {
  return find_kernel<kThinDirectInstances>(instance, [](auto row) {
    using Element = typename element::ElementOf<row->dtype>::type;
    if constexpr (row->direction == Direction::kGradWeight) {
      return CONVT_KERNEL(direct_weight_kernel<Element>);
    } else {
      return CONVT_KERNEL(direct_kernel<Element>);  // forward and the gradient of the input share one kernel
    }
  });
}

}  // namespace convt::gather
