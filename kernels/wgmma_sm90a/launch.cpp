#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/kernel_table.h"
#include "wgmma_sm90a/instances.h"
#include "wgmma_sm90a/launch_params.h"

namespace convt {

CONVT_KERNEL_TABLE(wgmma_sm90a, CONVT_WGMMA_INSTANCES, Kernels)

void launch_wgmma(const ConvTProblem& problem, const Plan& plan, const WgmmaTile& tile, const Pointers& pointers,
                  cudaStream_t stream) {
  if (tile.instance < 0 || tile.instance >= kNumWgmmaInstances || pointers.packed == nullptr) {
    throw std::runtime_error("convt_ext: no Hopper kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  const bool forward = problem.direction == Direction::kForward;
  WgmmaLaunch launch =
      make_wgmma_launch(problem, tile, forward ? pointers.x : pointers.y, pointers.w, forward ? pointers.bias : nullptr,
                        forward ? pointers.y : pointers.x, pointers.packed);
  const wgmma_sm90a::Kernels kernels = wgmma_sm90a::kKernels[tile.instance]();

  if (launch.pack.blocks > 0 && !pointers.is_packed) launch_pack(kernels.pack, plan, launch.pack, stream);
  launch_kernel(kernels.convolve, grid_of(plan), stream, launch.convolve);
}

}  // namespace convt
