#include "direct/instances.h"

namespace convt::direct {

const void* kernel_of(int32_t instance) { return kThinDirectInstances[instance].name; }

}  // namespace convt::direct
