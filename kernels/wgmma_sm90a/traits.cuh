// Compile-time description of one instance of the wgmma engine.
#pragma once

#include "element/operand.cuh"
#include "wgmma_sm90a/instances.h"

namespace convt::wgmma_sm90a {

using element::Operand;
using element::to_element;
template <Operand kOperand, int kN>
using Traits = element::ProductTraits<kOperand, kN>;

// A CTA is a warpgroup that multiplies, three loader warps and one warp for the weights. Two CTAs share an SM and know
// nothing of each other: while one stores its results, the other has the tensor cores for itself.
inline constexpr int kConsumerThreads = 128;
inline constexpr int kLoaderWarps = kWgmmaLoaders / 32;
inline constexpr int kThreads = kWgmmaThreads;
inline constexpr int kBlocksPerSm = kWgmmaBlocksPerSm;
inline constexpr int kConsumerRegisters = 184;
inline constexpr int kLoaderRegisters = 72;  // 184 + 72 = 2 * 128, the launch's

#ifdef CONVT_HAS_WGMMA
using element::low_term;
#endif

}  // namespace convt::wgmma_sm90a
