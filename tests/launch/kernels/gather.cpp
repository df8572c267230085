#include "gather/instances.h"

namespace convt::gather {

const void* kernel_of(int32_t instance) { return kThinGatherInstances[instance].name; }
const void* direct_kernel_of(int32_t instance) { return kThinDirectInstances[instance].name; }

}  // namespace convt::gather
