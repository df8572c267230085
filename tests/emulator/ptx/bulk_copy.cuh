// Emulates kernels/ptx/bulk_copy.cuh.
#pragma once

#include <cstdint>

#include "emulator/asynchronous.h"
#include "emulator/device.h"

#define CONVT_HAS_BULK_COPY 1

namespace convt::ptx {

inline void bulk_store(void* global, uint32_t shared, uint32_t bytes) {
  emulator::require((shared | bytes | reinterpret_cast<uintptr_t>(global)) % 16 == 0, "bulk stores are on 16 bytes");
  emulator::store_later([=] {
    for (uint32_t i = 0; i < bytes; i += 16) {
      memcpy(static_cast<char*>(global) + i, emulator::shared_bytes(shared + i, 16), 16);
    }
  });
}
inline void bulk_commit() { emulator::end_group_of_stores(); }
template <int kPending = 0>
void bulk_wait_read() {
  emulator::make_all_stores_but(kPending);
}
inline void fence_proxy_async() {}

}  // namespace convt::ptx
