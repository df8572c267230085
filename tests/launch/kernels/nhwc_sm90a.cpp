#include "nhwc_sm90a/instances.h"

namespace convt::nhwc_sm90a {

const void* kernel_of(int32_t instance) { return kNhwcInstances[instance].name; }

}  // namespace convt::nhwc_sm90a
