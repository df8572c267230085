#include "correlate_sm90a/instances.h"
#include "correlate_sm90a/pixels.cuh"
#include "correlate_sm90a/transposed.cuh"
#include "plan/kernel_table.h"

namespace convt::correlate_sm90a {

const void* pixels_kernel_of(int32_t instance) {
  return find_kernel<kCorrelateInstances>(instance, [](auto row) {
    if constexpr (row->form != CorrelateForm::kPixels) {
      return nullptr;
    } else if constexpr (row->dtype == DataType::kFloat32) {
      return CONVT_KERNEL(hopper::convolve<OfTransposedPixels<row->taps, row->columns, row->consumers>>);
    } else {
      using Element = typename element::ElementOf<row->dtype>::type;
      return CONVT_KERNEL(hopper::convolve<OfPixels<Element, row->taps, row->columns, row->consumers>>);
    }
  });
}

}  // namespace convt::correlate_sm90a
