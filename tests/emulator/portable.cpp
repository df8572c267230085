// The portable engine's kernels as host functions: compiled as they are, with the emulator's device code.
#include "emulator/device.h"
#include "emulator/emulator.h"
#include "portable/instance.cuh"
#include "portable/instances/bf16.cu"
#include "portable/instances/f16.cu"
#include "portable/instances/pack.cu"
#include "portable/instances/tf32.cu"

namespace convt::portable {

alignas(1024) unsigned char s_bytes[emulator::kMostSharedBytes];  // what every kernel of this namespace declares

}  // namespace convt::portable

void know_portable_kernels() {
  using namespace convt;
  using namespace convt::portable;
#define CONVT_ROW(symbol, dtype, block_m, block_n, warps_m, warps_n) \
  emulator::know(&convolve<element::ElementOf<DataType::dtype>::type, block_m, block_n, warps_m, warps_n>, s_bytes);
  CONVT_PORTABLE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
#define CONVT_ROW(symbol, dtype, block) \
  emulator::know(&grad_weight<element::ElementOf<DataType::dtype>::type, block>, s_bytes);
  CONVT_PORTABLE_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
  emulator::know(&portable::pack_pixels<float>, s_bytes);
  emulator::know(&portable::pack_pixels<__half>, s_bytes);
  emulator::know(&portable::pack_weights<float>, s_bytes);
  emulator::know(&portable::pack_weights<__half>, s_bytes);
}
