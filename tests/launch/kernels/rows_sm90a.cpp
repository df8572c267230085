#include "rows_sm90a/instances.h"

namespace convt::rows_sm90a {

namespace strided {
const void* kernel_of(int32_t instance) { return kStridedInstances[instance].name; }
}  // namespace strided

namespace window {
const void* kernel_of(int32_t instance) { return kWindowInstances[instance].name; }
}  // namespace window

}  // namespace convt::rows_sm90a
