// What a file of instances/ consists of.
#pragma once

#include "scatter_sm90a/instances.h"
#include "scatter_sm90a/kernel.cuh"

#define CONVT_SCATTER_INSTANCE(symbol, dtype, precision, slots, columns, channels_last)         \
  const void* convt::scatter_sm90a::symbol() {                                                  \
    return reinterpret_cast<const void*>(                                                       \
        &scatter<Shape<DataType::dtype, Precision::precision, slots, columns, channels_last>>); \
  }
