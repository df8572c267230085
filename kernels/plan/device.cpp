#include "plan/device.h"

#include <string_view>

namespace convt {
namespace {

// Hopper's matrix products exist in code made for 9.0a alone. A binary without it runs there too where it has PTX.
#ifdef CONVT_ARCHITECTURES
constexpr bool kHasHopperCode = std::string_view(CONVT_ARCHITECTURES).find("9.0a") != std::string_view::npos;
#else
constexpr bool kHasHopperCode = true;
#endif

}  // namespace

bool has_hopper_kernels(const DeviceInfo& device) { return kHasHopperCode && device.compute_capability == 90; }

}  // namespace convt
