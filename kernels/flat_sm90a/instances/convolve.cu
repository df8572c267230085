#include "flat_sm90a/instances.h"
#include "flat_sm90a/kernel.cuh"
#include "plan/kernel_table.h"

namespace convt::flat_sm90a {

const void* kernel_of(int32_t instance) {
  return find_kernel<kFlatInstances>(instance, [](auto row) {
    using Traits = element::ProductTraits<element::operand_of(row->dtype, row->precision), kFlatChannels>;
    return CONVT_KERNEL(hopper::convolve<Convolution<Shape<Traits, row->phases, row->consumers, row->accumulators>>>);
  });
}

}  // namespace convt::flat_sm90a
