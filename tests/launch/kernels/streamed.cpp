#include "streamed/instances.h"

namespace convt::streamed {

const void* kernel_of(int32_t instance) { return kThinStreamedInstances[instance].name; }
const void* gather_kernel_of(int32_t instance) { return kThinGatherInstances[instance].name; }

}  // namespace convt::streamed
