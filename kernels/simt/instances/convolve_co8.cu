#include "simt/forward.cuh"
#include "simt/instances.h"

namespace convt::simt {

const void* kernel_of_co8(int32_t instance) { return kernel_of_co<8>(instance); }

}  // namespace convt::simt
