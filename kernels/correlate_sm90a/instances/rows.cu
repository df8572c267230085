#include "correlate_sm90a/instances.h"
#include "correlate_sm90a/rows.cuh"
#include "plan/kernel_table.h"

namespace convt::correlate_sm90a {

const void* rows_kernel_of(int32_t instance) {
  return find_kernel<kCorrelateInstances>(instance, [](auto row) {
    constexpr bool kBoxes = row->form == CorrelateForm::kBoxes;
    using Element = typename element::ElementOf<row->dtype>::type;
    if constexpr (row->form == CorrelateForm::kPixels) {
      return nullptr;
    } else {
      return CONVT_KERNEL(
          hopper::convolve<OfRows<Element, row->taps, row->columns, row->consumers, row->stride_w, kBoxes>>);
    }
  });
}

}  // namespace convt::correlate_sm90a
