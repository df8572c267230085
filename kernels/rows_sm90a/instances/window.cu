#include "rows_sm90a/kernel.cuh"

#define CONVT_ROW(symbol, ...) \
  CONVT_DEFINE_KERNEL(rows_sm90a::window, symbol, hopper::convolve<Convolution<CONVT_WINDOW_SHAPE_OF(__VA_ARGS__)>>)
CONVT_WINDOW_INSTANCES(CONVT_ROW)
