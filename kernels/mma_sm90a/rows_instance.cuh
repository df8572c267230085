// What a file of instances/ for tiles of whole rows consists of. The template arguments come from
// mma_sm90a/instances.h.
#pragma once

#include "mma_sm90a/instances.h"
#include "mma_sm90a/rows.cuh"

#define CONVT_MMA_ROWS_INSTANCE(symbol)                                                                   \
  const void* convt::mma_sm90a::symbol() {                                                                \
    constexpr MmaInstance kInstance = kMmaRowsInstances[k_mma_##symbol];                                  \
    using InstanceTraits = RowsTraits<kInstance.dtype, kInstance.column_tiles, kInstance.position_tiles>; \
    return reinterpret_cast<const void*>(&forward_rows<InstanceTraits>);                                  \
  }
