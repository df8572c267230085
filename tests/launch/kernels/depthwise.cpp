#include "depthwise/instances.h"

namespace convt::depthwise {

const void* kernel_of(int32_t instance) { return kThinDepthwiseInstances[instance].name; }
const void* channels_last_kernel_of(int32_t instance) { return kThinChannelsLastInstances[instance].name; }

}  // namespace convt::depthwise
