#include "plan/device.h"

#include <string_view>

namespace convt {
namespace {

// wgmma exists only in code compiled for 9.0a. A binary without that code still runs on Hopper if it contains PTX.
#ifdef CONVT_ARCHITECTURES
constexpr bool kHasHopperCode = std::string_view(CONVT_ARCHITECTURES).find("9.0a") != std::string_view::npos;
#else
constexpr bool kHasHopperCode = true;
#endif

}  // namespace

bool has_hopper_kernels(const DeviceInfo& device) { return kHasHopperCode && device.compute_capability == 90; }

}  // namespace convt
