#include "portable/instances.h"

namespace convt::portable {

const void* kernel_of(int32_t instance) { return kPortableInstances[instance].name; }
const void* grad_weight_kernel_of(int32_t instance) { return kPortableGradWeightInstances[instance].name; }
const void* pack_weights(DataType) { return "weights pack"; }

}  // namespace convt::portable
