#include "pack/weights_sm90a/pack_weights.cuh"
#include "plan/kernel_table.h"

namespace convt::pack {

using element::Operand;
using element::OperandTraits;

const void* pack_weights(DataType dtype, Precision precision) {
  if (dtype != DataType::kFloat32) {
    return CONVT_KERNEL(pack_weights<OperandTraits<Operand::kFloat16>>);  // also for bfloat16: only bits are moved
  }
  return precision == Precision::kTf32x3 ? CONVT_KERNEL(pack_weights<OperandTraits<Operand::kTf32x3>>)
                                         : CONVT_KERNEL(pack_weights<OperandTraits<Operand::kTf32>>);
}

}  // namespace convt::pack
