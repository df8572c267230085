#include "plan/kernel_table.h"
#include "streamed/instances.h"
#include "streamed/layout.h"
#include "streamed/params.h"
#include "streamed/tiled_launch.h"

namespace convt {

CONVT_KERNEL_TABLE(streamed, CONVT_THIN_STREAMED_INSTANCES, const void*)

void launch_thin_streamed(const ConvTProblem& problem, const Plan& plan, const ThinStreamedTile& tile,
                          const Pointers& pointers, cudaStream_t stream) {
  launch_thin_tiled<streamed::StreamedParams>(problem, plan, tile, make_thin_streamed_layout, kThinStreamedInstances,
                                              streamed::kKernels, pointers, stream);
}

}  // namespace convt
