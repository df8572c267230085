#include "correlate_sm90a/instances.h"
#include "launch/recorder.h"

namespace convt::correlate_sm90a {

const void* pixels_kernel_of(int32_t instance) {
  const CorrelateInstance& row = kCorrelateInstances[instance];
  return name_if(row.form == CorrelateForm::kPixels, row);
}
const void* rows_kernel_of(int32_t instance) {
  const CorrelateInstance& row = kCorrelateInstances[instance];
  return name_if(row.form != CorrelateForm::kPixels, row);
}

}  // namespace convt::correlate_sm90a
