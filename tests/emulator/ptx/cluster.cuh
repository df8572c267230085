// Emulates kernels/ptx/cluster.cuh for clusters of one CTA: CTAs run one after another.
#pragma once

#include <cstdint>

#include "emulator/device.h"

namespace convt::ptx {

inline uint32_t cluster_rank() { return 0; }
inline void cluster_barrier() { emulator::require(false, "a CTA is alone"); }
inline void cluster_arrive() { cluster_barrier(); }
inline void cluster_wait() { cluster_barrier(); }
inline uint32_t shared_of_rank(uint32_t, uint32_t) {
  emulator::require(false, "a CTA is alone");
  return 0;
}
inline void store_cluster(uint32_t, const float*) {}
inline void store_cluster_async(uint32_t, const float*, uint32_t) {}

}  // namespace convt::ptx
