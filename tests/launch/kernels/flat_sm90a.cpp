#include "flat_sm90a/instances.h"

namespace convt::flat_sm90a {

const void* kernel_of(int32_t instance) { return kFlatInstances[instance].name; }
const void* pack_operands(DataType) { return "operands pack"; }

}  // namespace convt::flat_sm90a
