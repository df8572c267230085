// What a file of instances/ consists of.
#pragma once

#include "upsample_sm90a/instances.h"
#include "upsample_sm90a/kernel.cuh"

#define CONVT_UPSAMPLE_INSTANCE(symbol, dtype)                               \
  const void* convt::upsample_sm90a::symbol() {                              \
    return reinterpret_cast<const void*>(&upsample<Shape<DataType::dtype>>); \
  }
