#include "plan/kernel_table.h"
#include "portable/grad_weight.cuh"
#include "portable/instances.h"
#include "portable/kernel.cuh"
#include "portable/pack.cuh"

namespace convt::portable {

const void* kernel_of(int32_t instance) {
  return find_kernel<kPortableInstances>(instance, [](auto row) {
    using Element = typename element::ElementOf<row->dtype>::type;
    return CONVT_KERNEL(convolve<Element, row->block_m, row->block_n, row->warps_m, row->warps_n>);
  });
}

const void* grad_weight_kernel_of(int32_t instance) {
  return find_kernel<kPortableGradWeightInstances>(instance, [](auto row) {
    using Element = typename element::ElementOf<row->dtype>::type;
    return CONVT_KERNEL(grad_weight<Element, row->block>);
  });
}

const void* pack_weights(DataType dtype) {
  if (dtype == DataType::kFloat32) return CONVT_KERNEL(pack_weights<float>);
  return CONVT_KERNEL(pack_weights<__half>);  // also for bfloat16: only bits are moved
}

}  // namespace convt::portable
