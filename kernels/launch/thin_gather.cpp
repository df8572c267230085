#include "plan/thin_gather.h"

#include "launch/kernel_table.h"
#include "launch/thin_tiled.h"
#include "plan/thin_instances.h"
#include "thin/gather_params.h"
#include "thin/instances.h"

namespace convt {

CONVT_KERNEL_TABLE(thin, CONVT_THIN_GATHER_INSTANCES, const void*)

void launch_thin_gather(const ConvTProblem& problem, const Plan& plan, const ThinGatherTile& tile,
                        const Pointers& pointers, cudaStream_t stream) {
  launch_thin_tiled<thin::GatherParams>(problem, plan, tile, make_thin_gather_layout, kThinGatherInstances,
                                        thin::kKernels, pointers, stream);
}

}  // namespace convt
