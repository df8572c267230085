#include "portable/grad_weight.cuh"
#include "portable/instances.h"
#include "portable/kernel.cuh"

#define CONVT_PORTABLE_ROW(symbol, dtype, block_m, block_n, warps_m, warps_n)                                     \
  CONVT_DEFINE_KERNEL(portable, symbol,                                                                           \
                      convt::portable::convolve<convt::element::ElementOf<convt::DataType::dtype>::type, block_m, \
                                                block_n, warps_m, warps_n>)
#define CONVT_PORTABLE_WEIGHT_ROW(symbol, dtype, block) \
  CONVT_DEFINE_KERNEL(portable, symbol,                 \
                      convt::portable::grad_weight<convt::element::ElementOf<convt::DataType::dtype>::type, block>)

CONVT_PORTABLE_INSTANCES(CONVT_PORTABLE_ROW)
CONVT_PORTABLE_WEIGHT_INSTANCES(CONVT_PORTABLE_WEIGHT_ROW)
