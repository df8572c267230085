// What the thin engine's loader of the gradient of the weight (thin/grad_weight_loader.cuh) is told by the launchers of
// the kernels that use it.
#pragma once

#include "launch/launch.h"
#include "thin/grad_weight_params.h"

namespace convt {

// Everything but how a kernel walks through its pixels. `loaders`: warps that copy a stage.
void fill_thin_weight_params(const ConvTProblem& problem, const ThinGradWeightLayout& layout,
                             const ThinWeightPitches& pitches, int32_t loaders, const Pointers& pointers,
                             thin::GradWeightParams* params);

}  // namespace convt
