#include "rows_sm90a/kernel.cuh"

#define CONVT_ROW(symbol, ...) \
  CONVT_DEFINE_KERNEL(rows_sm90a::strided, symbol, hopper::convolve<Convolution<CONVT_STRIDED_SHAPE_OF(__VA_ARGS__)>>)
CONVT_STRIDED_INSTANCES(CONVT_ROW)
