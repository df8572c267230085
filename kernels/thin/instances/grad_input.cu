#include "plan/kernel_table.h"
#include "thin/grad_input.cuh"
#include "thin/instances.h"

namespace convt::thin {

const void* grad_input_kernel_of(int32_t instance) {
  return find_kernel<kThinGradInputInstances>(instance, [](auto row) {
    return CONVT_KERNEL(grad_input_kernel<GradInputTraits<row->dtype, row->channels, row->positions>>);
  });
}

}  // namespace convt::thin
