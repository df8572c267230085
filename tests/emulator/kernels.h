// Included before an engine's kernels, which tests/emulator/<engine>.cpp compiles as host functions. The engine's
// launchers get the kernel addresses that emulator::launch() expects.
#pragma once

#include "emulator/device.h"
#include "emulator/emulator.h"

#define CONVT_KERNEL(...) emulator::known(&__VA_ARGS__)

// Every kernel declares a shared-memory array in its own namespace. All of them alias emulator_shared_memory.
#define CONVT_SHARED_MEMORY_OF(room)                                             \
  namespace convt::room {                                                        \
  extern thread_local unsigned char s_bytes[] __asm__("emulator_shared_memory"); \
  }
CONVT_SHARED_MEMORY_OF(gather)
CONVT_SHARED_MEMORY_OF(hopper)
CONVT_SHARED_MEMORY_OF(mma_sm90a)
CONVT_SHARED_MEMORY_OF(pack)
CONVT_SHARED_MEMORY_OF(patch_sm90a)
CONVT_SHARED_MEMORY_OF(portable)
CONVT_SHARED_MEMORY_OF(reduce)
CONVT_SHARED_MEMORY_OF(scatter_sm90a)
CONVT_SHARED_MEMORY_OF(simt)
CONVT_SHARED_MEMORY_OF(thin)
namespace convt::depthwise {
extern thread_local float4 s_weights[] __asm__("emulator_shared_memory");
extern thread_local float4 s_threads[] __asm__("emulator_shared_memory");
}  // namespace convt::depthwise
