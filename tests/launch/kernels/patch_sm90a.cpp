#include "patch_sm90a/instances.h"

namespace convt::patch_sm90a {

const void* kernel_of(int32_t instance) { return kPatchInstances[instance].name; }
const void* direct_kernel_of(int32_t instance) { return kPatchDirectInstances[instance].name; }
const void* runs_kernel_of(int32_t instance) { return kPatchRunsInstances[instance].name; }

}  // namespace convt::patch_sm90a
