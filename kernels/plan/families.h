// The kernel families, one row each: everything else that is one per family is made from this table.
//
// A family is one way to compute some problems: a kernel with its instances, a tile (the numbers that tell its plans
// apart), what finds its plans (add_<name>_plans) and what launches them (launch/families.h). Several families may
// share an engine, that is a folder and much of its code.
// Must not know: torch, CUDA.
#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "correlate_sm90a/layout.h"
#include "depthwise/channels_last_layout.h"
#include "depthwise/layout.h"
#include "direct/layout.h"
#include "flat_sm90a/layout.h"
#include "mma_sm90a/grad_input_layout.h"
#include "mma_sm90a/grad_weight_layout.h"
#include "mma_sm90a/layout.h"
#include "nhwc_sm90a/layout.h"
#include "patch_sm90a/layout.h"
#include "plan/device.h"
#include "portable/grad_weight_layout.h"
#include "portable/layout.h"
#include "problem/epilogue.h"
#include "problem/problem.h"
#include "rows_sm90a/layout.h"
#include "scatter_sm90a/layout.h"
#include "simt/grad_weight_layout.h"
#include "simt/layout.h"
#include "streamed/layout.h"
#include "thin/grad_input_layout.h"
#include "thin/grad_weight_layout.h"
#include "thin/layout.h"
#include "thin/outer_weight_layout.h"

namespace convt {

// Problems that no family of a kind has kernels for, before a family looks at shapes.
bool any_class(const ConvTProblem& problem, const DeviceInfo& device);
bool sums_as_ieee(const ConvTProblem& problem, const DeviceInfo& device);
bool on_hopper_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device);
bool on_portable_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device);

// How much of an epilogue a family's kernels run on their accumulators.
inline epilogue::Fuses fuses_nothing(const ConvTProblem&) { return epilogue::Fuses::kNothing; }
inline epilogue::Fuses fuses_channels(const ConvTProblem&) { return epilogue::Fuses::kChannels; }
inline epilogue::Fuses fuses_results(const ConvTProblem&) { return epilogue::Fuses::kResults; }

// X(tile, name, engine, serves, fuses). Of equal estimates the plans of the first row come first. On tensor cores the
// families whose search takes longest are last: choose_plan() shortens them by what the others have found.
// clang-format off
#define CONVT_FAMILIES(X)                                                                         \
  X(SimtTile, simt, "simt", any_class, fuses_nothing)                                             \
  X(SimtGradWeightTile, simt_grad_weight, "simt", any_class, fuses_nothing)                       \
  X(ThinDepthwiseTile, thin_depthwise, "depthwise", sums_as_ieee, fuses_nothing)                  \
  X(ThinChannelsLastTile, thin_channels_last, "depthwise", sums_as_ieee, fuses_nothing)           \
  X(ThinDirectTile, thin_direct, "direct", sums_as_ieee, fuses_nothing)                           \
  X(ThinGatherTile, thin_gather, "streamed", sums_as_ieee, fuses_nothing)                         \
  X(ThinStreamedTile, thin_streamed, "streamed", sums_as_ieee, fuses_nothing)                     \
  X(ThinGradInputTile, thin_grad_input, "thin", sums_as_ieee, fuses_nothing)                      \
  X(ThinGradWeightTile, thin_grad_weight, "thin", sums_as_ieee, fuses_nothing)                    \
  X(ThinOuterWeightTile, thin_outer_weight, "thin", sums_as_ieee, fuses_nothing)                  \
  X(ThinTile, thin, "thin", sums_as_ieee, fuses_nothing)                                          \
  X(FlatTile, flat, "flat_sm90a", on_hopper_tensor_cores, fuses_results)                          \
  X(PatchDirectTile, patch_direct, "patch_sm90a", on_hopper_tensor_cores, fuses_results)          \
  X(PatchRunsTile, patch_runs, "patch_sm90a", on_hopper_tensor_cores, fuses_nothing)              \
  X(PatchTile, patch, "patch_sm90a", on_hopper_tensor_cores, fuses_results)                       \
  X(StridedTile, strided, "rows_sm90a", on_hopper_tensor_cores, fuses_results)                    \
  X(WindowTile, window, "rows_sm90a", on_hopper_tensor_cores, fuses_channels)                     \
  X(ScatterTile, scatter, "scatter_sm90a", on_hopper_tensor_cores, fuses_nothing)                 \
  X(PortableTile, portable, "portable", on_portable_tensor_cores, fuses_results)                  \
  X(PortableGradWeightTile, portable_grad_weight, "portable", on_portable_tensor_cores, fuses_nothing)\
  X(CorrelateTile, correlate, "correlate_sm90a", on_hopper_tensor_cores, fuses_nothing)           \
  X(NhwcTile, nhwc, "nhwc_sm90a", on_hopper_tensor_cores, fuses_results)                          \
  X(MmaRowsTile, mma_rows, "mma_sm90a", on_hopper_tensor_cores, fuses_nothing)                    \
  X(MmaTile, mma, "mma_sm90a", on_hopper_tensor_cores, fuses_nothing)                             \
  X(MmaGradInputTile, mma_grad_input, "mma_sm90a", on_hopper_tensor_cores, fuses_nothing)         \
  X(MmaGradWeightTile, mma_grad_weight, "mma_sm90a", on_hopper_tensor_cores, fuses_nothing)
// clang-format on

// The tile of one of them, or of none yet.
#define CONVT_ROW(tile, ...) , tile
using FamilyTile = std::variant<std::monostate CONVT_FAMILIES(CONVT_ROW)>;
#undef CONVT_ROW

struct Plan;
struct Candidates;

// Each adds its candidates of a problem that it `serves`, nothing where it has no kernel for it.
// add_simt_plans() throws std::invalid_argument for a class that has no order of sums in the problem's dtype.
#define CONVT_ROW(tile, name, ...) \
  void add_##name##_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans);
CONVT_FAMILIES(CONVT_ROW)
#undef CONVT_ROW

struct Family {
  const char* name;
  const char* engine;
  bool (*serves)(const ConvTProblem& problem, const DeviceInfo& device);
  epilogue::Fuses (*fuses)(const ConvTProblem& problem);
  void (*add)(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans);
};

#define CONVT_ROW(tile, name, engine, serves, fuses) {#name, engine, &serves, &fuses, &add_##name##_plans},
inline constexpr Family kFamilies[] = {CONVT_FAMILIES(CONVT_ROW)};
#undef CONVT_ROW

// Of a tile that is one of a family.
inline const Family& family_of(const FamilyTile& tile) { return kFamilies[tile.index() - 1]; }

// Calls `field(name, value)` for each of the tile's fields, in its family's order.
template <typename Visitor>
void visit_fields(const FamilyTile& tile, Visitor&& field) {
  std::visit(
      [&field](const auto& of_family) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(of_family)>, std::monostate>) of_family.fields(field);
      },
      tile);
}

}  // namespace convt
