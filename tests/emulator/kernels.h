// Included before an engine's kernels, which tests/emulator/<engine>.cpp compiles as host functions. The engine's
// launchers get the kernel addresses that emulator::launch() expects.
#pragma once

#include "emulator/device.h"
#include "emulator/emulator.h"

#define CONVT_KERNEL(...) emulator::known(&__VA_ARGS__)

// Every kernel declares a shared-memory array in its own namespace. All of them alias emulator_shared_memory.
#define CONVT_SHARED_MEMORY_OF(room)                                \
  namespace convt::room {                                           \
  extern unsigned char s_bytes[] __asm__("emulator_shared_memory"); \
  }
CONVT_SHARED_MEMORY_OF(hopper)
CONVT_SHARED_MEMORY_OF(pack)
CONVT_SHARED_MEMORY_OF(patch_sm90a)
CONVT_SHARED_MEMORY_OF(portable)
