// The list of kernel families. To add a family, include the header of its tile and add a row here. The tables of
// families.cpp and launch.cpp follow. Engines, plan/ and launch/ never include this folder. Must not know: torch, CUDA.
#pragma once

#include "correlate_sm90a/layout.h"
#include "depthwise/channels_last_layout.h"
#include "depthwise/layout.h"
#include "flat_sm90a/layout.h"
#include "gather/layout.h"
#include "mma_sm90a/grad_input_layout.h"
#include "mma_sm90a/grad_weight_layout.h"
#include "mma_sm90a/rows_layout.h"
#include "nhwc_sm90a/layout.h"
#include "patch_sm90a/layout.h"
#include "plan/family.h"
#include "plan/plan.h"
#include "portable/grad_weight_layout.h"
#include "portable/layout.h"
#include "rows_sm90a/layout.h"
#include "scatter_sm90a/layout.h"
#include "simt/grad_weight_layout.h"
#include "simt/layout.h"
#include "thin/grad_input_layout.h"
#include "thin/grad_weight_layout.h"
#include "thin/layout.h"
#include "thin/outer_weight_layout.h"

namespace convt {

// X(tile, name, engine, serves, fuses): the tile's type, then the members of Family (plan/family.h). On equal estimates
// the earlier row comes first. Tensor-core families with long searches are last, because choose_plan() shortens a
// search by the best estimate so far.
// clang-format off
#define CONVT_FAMILIES(X)                                                                         \
  X(SimtTile, simt, "simt", any_class, kNothing)                                                  \
  X(SimtGradWeightTile, simt_grad_weight, "simt", any_class, kNothing)                            \
  X(ThinDepthwiseTile, thin_depthwise, "depthwise", sums_as_ieee, kNothing)                       \
  X(ThinChannelsLastTile, thin_channels_last, "depthwise", sums_as_ieee, kNothing)                \
  X(ThinDirectTile, thin_direct, "gather", sums_as_ieee, kNothing)                                \
  X(ThinGatherTile, thin_gather, "gather", sums_as_ieee, kNothing)                                \
  X(ThinGradInputTile, thin_grad_input, "thin", sums_as_ieee, kNothing)                           \
  X(ThinGradWeightTile, thin_grad_weight, "thin", sums_as_ieee, kNothing)                         \
  X(ThinOuterWeightTile, thin_outer_weight, "thin", sums_as_ieee, kNothing)                       \
  X(ThinTile, thin, "thin", sums_as_ieee, kNothing)                                               \
  X(FlatTile, flat, "flat_sm90a", on_hopper_tensor_cores, kResults)                               \
  X(PatchDirectTile, patch_direct, "patch_sm90a", on_hopper_in_any_depth, kResults)               \
  X(PatchRunsTile, patch_runs, "patch_sm90a", on_hopper_tensor_cores, kNothing)                   \
  X(PatchTile, patch, "patch_sm90a", on_hopper_in_any_depth, kResults)                            \
  X(StridedTile, strided, "rows_sm90a", on_hopper_tensor_cores, kResults)                         \
  X(WindowTile, window, "rows_sm90a", on_hopper_tensor_cores, kChannels)                          \
  X(ScatterTile, scatter, "scatter_sm90a", on_hopper_tensor_cores, kNothing)                      \
  X(PortableTile, portable, "portable", on_portable_tensor_cores, kResults)                       \
  X(PortableGradWeightTile, portable_grad_weight, "portable", on_portable_tensor_cores, kNothing) \
  X(CorrelateTile, correlate, "correlate_sm90a", on_hopper_in_any_depth, kNothing)                \
  X(NhwcTile, nhwc, "nhwc_sm90a", on_hopper_in_any_depth, kResults)                               \
  X(MmaRowsTile, mma_rows, "mma_sm90a", on_hopper_tensor_cores, kNothing)                         \
  X(MmaGradInputTile, mma_grad_input, "mma_sm90a", on_hopper_tensor_cores, kNothing)              \
  X(MmaGradWeightTile, mma_grad_weight, "mma_sm90a", on_hopper_tensor_cores, kNothing)
// clang-format on

// The only declarations: a definition with other parameters does not link. add_simt_plans() throws
// std::invalid_argument if the class has no order of sums for the problem's dtype.
#define CONVT_ROW(Tile, name, ...) \
  void add_##name##_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans);
CONVT_FAMILIES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt
