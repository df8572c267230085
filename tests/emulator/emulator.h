// Launches of emulated kernels.
#pragma once

#include <cstdint>
#include <functional>

namespace emulator {

// What runs one thread of a kernel, known by its host function; it is given the kernel's only argument. `shared` is the
// array of shared memory that the kernel declares. Some kernels' lanes may read several places of one bank at once.
struct Known {
  unsigned char* shared;
  bool may_conflict;
  std::function<void(const void* argument)> call;
};
void know(const void* kernel, Known known);

// Runs the CTAs one after the other. Throws std::runtime_error for a kernel that is not known, and where the threads of
// a CTA wait for each other; ends the process at an address that is wrong.
void launch(const void* kernel, int64_t blocks, int threads, int shared, const void* argument);

template <typename Params>
void know(void (*kernel)(Params), unsigned char* shared, bool may_conflict = false) {
  know(reinterpret_cast<const void*>(kernel),
       {shared, may_conflict, [kernel](const void* argument) { kernel(*static_cast<const Params*>(argument)); }});
}

}  // namespace emulator

// Tells the emulator the kernels of an engine: tests/emulator/<engine>.cpp.
void know_nhwc_kernels();
void know_portable_kernels();
