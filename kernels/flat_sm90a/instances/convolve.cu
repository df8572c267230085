#include "flat_sm90a/instances.h"
#include "flat_sm90a/kernel.cuh"
#include "flat_sm90a/pack.cuh"
#include "plan/kernel_table.h"

namespace convt::flat_sm90a {

const void* kernel_of(int32_t instance) {
  return find_kernel<kFlatInstances>(instance, [](auto row) {
    using Traits = element::ProductTraits<element::operand_of(row->dtype, row->precision), kFlatChannels>;
    return CONVT_KERNEL(hopper::convolve<Convolution<Shape<Traits, row->phases, row->consumers, row->accumulators>>>);
  });
}

using element::Operand;
using element::OperandTraits;

const void* pack_operands(DataType dtype) {
  if (dtype == DataType::kFloat32) return CONVT_KERNEL(pack_operands<OperandTraits<Operand::kTf32>>);
  return CONVT_KERNEL(pack_operands<OperandTraits<Operand::kFloat16>>);  // bits of bfloat16 are moved as well
}

}  // namespace convt::flat_sm90a
