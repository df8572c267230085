#include "mma_sm90a/instances.h"

namespace convt::mma_sm90a {

const void* rows_kernel_of(int32_t instance) { return kMmaRowsInstances[instance].name; }
const void* grad_input_kernel_of(int32_t instance) { return kMmaGradInputInstances[instance].name; }
const void* grad_weight_kernel_of(int32_t instance) { return kMmaGradWeightInstances[instance].name; }

}  // namespace convt::mma_sm90a
