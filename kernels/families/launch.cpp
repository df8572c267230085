#include "families/launch.h"

namespace convt {
namespace {

template <typename T, void (*kLaunch)(const ConvTProblem&, const Plan&, const T&, const Pointers&, cudaStream_t)>
void launch_tile(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  kLaunch(problem, plan, tile_of<T>(plan), pointers, stream);
}

// In the order of families().
#define CONVT_ROW(Tile, name, ...) &launch_tile<Tile, &launch_##name>,
constexpr Launcher kLaunchers[] = {CONVT_FAMILIES(CONVT_ROW)};
#undef CONVT_ROW

}  // namespace

Launcher launcher_of(const Family& family) { return kLaunchers[&family - families().begin()]; }

}  // namespace convt
