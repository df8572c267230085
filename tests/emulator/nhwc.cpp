// The NHWC engine's kernels as host functions: compiled as they are, with the emulator's device code.
#include "emulator/device.h"
#include "emulator/emulator.h"
#include "hopper/kernel.cuh"

// Arrays of shared memory inside of functions are one for all threads.
#undef __shared__
#define __shared__ static

#include "nhwc_sm90a/instances/half.cu"
#include "nhwc_sm90a/instances/tf32.cu"
#include "nhwc_sm90a/instances/tf32x3.cu"

namespace convt::hopper {

alignas(1024) unsigned char s_bytes[emulator::kMostSharedBytes];  // what every kernel of this namespace declares

}  // namespace convt::hopper

void know_nhwc_kernels() {
  using namespace convt;
  using namespace convt::nhwc_sm90a;
#define CONVT_ROW(symbol, dtype, precision, blocks, block_n, k_steps)                                           \
  {                                                                                                             \
    using Traits = element::ProductTraits<element::operand_of(DataType::dtype, Precision::precision), block_n>; \
    emulator::know(&pack::pack_weights<Traits>, hopper::s_bytes);                                               \
    emulator::know(&hopper::convolve<Convolution<Shape<Traits, blocks, k_steps>>>, hopper::s_bytes, true);      \
  }
  CONVT_NHWC_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
}
