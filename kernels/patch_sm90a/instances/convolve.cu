#include "patch_sm90a/direct.cuh"
#include "patch_sm90a/instances.h"
#include "patch_sm90a/kernel.cuh"
#include "patch_sm90a/runs.cuh"
#include "plan/kernel_table.h"

namespace convt::patch_sm90a {

const void* kernel_of(int32_t instance) {
  return find_kernel<kPatchInstances>(instance, [](auto row) {
    using Traits = element::ProductTraits<element::operand_of(row->dtype, row->precision), kPatchChannels>;
    return CONVT_KERNEL(hopper::convolve<Convolution<Shape<Traits, row->form, row->blocks, row->consumers>>>);
  });
}

const void* direct_kernel_of(int32_t instance) {
  return find_kernel<kPatchDirectInstances>(instance, [](auto row) {
    using Element = typename element::ElementOf<row->dtype>::type;
    return CONVT_KERNEL(convolve_direct<Element, row->consumers>);
  });
}

const void* runs_kernel_of(int32_t instance) {
  return find_kernel<kPatchRunsInstances>(instance, [](auto row) {
    using Element = typename element::ElementOf<row->dtype>::type;
    return CONVT_KERNEL(convolve_runs<Element, row->channels>);
  });
}

}  // namespace convt::patch_sm90a
