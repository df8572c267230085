// Sets the parameters of the strip loader (tiling/strip_loader.cuh). Called by the launchers of thin/ and mma_sm90a/.
#pragma once

#include "launch/launch.h"
#include "tiling/strip_params.h"

namespace convt {

// Sets all parameters except how a kernel iterates over its pixels. `loaders`: warps that copy a stage.
void fill_strip_params(const ConvTProblem& problem, const StripLayout& layout, const StripPitches& pitches,
                       int32_t loaders, const Pointers& pointers, tiling::StripParams* params);

}  // namespace convt
