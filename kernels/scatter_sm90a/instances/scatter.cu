#include "plan/kernel_table.h"
#include "scatter_sm90a/instances.h"
#include "scatter_sm90a/kernel.cuh"

namespace convt::scatter_sm90a {

const void* kernel_of(int32_t instance) {
  return find_kernel<kScatterInstances>(instance, [](auto row) {
    using RowShape = Shape<row->dtype, row->precision, row->slots, row->columns, row->channels_last>;
    return CONVT_KERNEL(scatter<RowShape>);
  });
}

}  // namespace convt::scatter_sm90a
