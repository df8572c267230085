#include "flat_sm90a/instances.h"
#include "flat_sm90a/pack.cuh"

namespace convt::flat_sm90a {

using element::Operand;
using element::OperandTraits;

const void* pack_operands(DataType dtype) {
  if (dtype == DataType::kFloat32) return CONVT_KERNEL(pack_operands<OperandTraits<Operand::kTf32>>);
  return CONVT_KERNEL(pack_operands<OperandTraits<Operand::kFloat16>>);  // bits of bfloat16 are moved as well
}

}  // namespace convt::flat_sm90a
