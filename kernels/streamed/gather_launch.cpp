#include "plan/kernel_table.h"
#include "streamed/gather_layout.h"
#include "streamed/gather_params.h"
#include "streamed/instances.h"
#include "streamed/tiled_launch.h"

namespace convt {

CONVT_KERNEL_TABLE(streamed, CONVT_THIN_GATHER_INSTANCES, const void*)

void launch_thin_gather(const ConvTProblem& problem, const Plan& plan, const ThinGatherTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  launch_thin_tiled<streamed::GatherParams>(problem, plan, tile, make_thin_gather_layout, kThinGatherInstances,
                                            streamed::kKernels, pointers, stream);
}

}  // namespace convt
