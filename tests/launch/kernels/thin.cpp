#include "thin/instances.h"

namespace convt::thin {

const void* kernel_of(int32_t instance) { return kThinInstances[instance].name; }
const void* grad_input_kernel_of(int32_t instance) { return kThinGradInputInstances[instance].name; }
const void* grad_weight_kernel_of(int32_t instance) { return kThinGradWeightInstances[instance].name; }
const void* outer_weight_kernel_of(int32_t instance) { return kThinOuterWeightInstances[instance].name; }

}  // namespace convt::thin
