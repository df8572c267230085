#include "launch/recorder.h"
#include "simt/instances.h"

namespace convt::simt {

const void* kernel_of_co8(int32_t instance) {
  return name_if(kInstances[instance].thread_co == 8, kInstances[instance]);
}
const void* kernel_of_co2(int32_t instance) {
  return name_if(kInstances[instance].thread_co == 2, kInstances[instance]);
}
const void* grad_weight_kernel_of(int32_t instance) { return kGradWeightInstances[instance].name; }

}  // namespace convt::simt
