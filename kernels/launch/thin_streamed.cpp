#include "plan/thin_streamed.h"

#include "launch/kernel_table.h"
#include "launch/thin_tiled.h"
#include "plan/thin_instances.h"
#include "thin/instances.h"
#include "thin/streamed_params.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_STREAMED_INSTANCES, const void*)

void launch_thin_streamed(const ConvTProblem& problem, const Plan& plan, const ThinStreamedTile& tile,
                          const Pointers& pointers, cudaStream_t stream) {
  launch_thin_tiled<thin::StreamedParams>(problem, plan, tile, make_thin_streamed_layout, kThinStreamedInstances,
                                          thin::kKernels, pointers, stream);
}

}  // namespace convt
