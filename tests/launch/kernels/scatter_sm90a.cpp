#include "scatter_sm90a/instances.h"

namespace convt::scatter_sm90a {

const void* kernel_of(int32_t instance) { return kScatterInstances[instance].name; }

}  // namespace convt::scatter_sm90a
