#include "nhwc_sm90a/instances.h"
#include "nhwc_sm90a/kernel.cuh"
#include "plan/kernel_table.h"

namespace convt::nhwc_sm90a {

const void* kernel_of(int32_t instance) {
  return find_kernel<kNhwcInstances>(instance, [](auto row) {
    using Traits = element::ProductTraits<element::operand_of(row->dtype, row->precision), row->block_n>;
    return CONVT_KERNEL(hopper::convolve<Convolution<Shape<Traits, row->ctas, row->blocks, row->k_steps>>>);
  });
}

}  // namespace convt::nhwc_sm90a
