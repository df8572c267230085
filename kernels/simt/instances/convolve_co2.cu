#include "simt/forward.cuh"
#include "simt/instances.h"

namespace convt::simt {

const void* kernel_of_co2(int32_t instance) { return kernel_of_co<2>(instance); }

}  // namespace convt::simt
