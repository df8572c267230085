// What a kernel of the gradient of the weight is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "plan/mma_grad_weight.h"
#include "thin/grad_weight_params.h"

namespace convt::mma_sm90a {

// What the thin engine's loader reads, and the rest of the layout.
struct GradWeightParams : thin::GradWeightParams {
  MmaGradWeightLayout layout;
  Divisor by_step_columns;  // columns of grad_output from a step to the next
};

}  // namespace convt::mma_sm90a
