// Launches of emulated kernels.
#pragma once

#include <cstdint>
#include <functional>

namespace emulator {

// What runs one thread of a kernel, known by its host function; it is given the kernel's only argument.
void know(const void* kernel, std::function<void(const void* argument)> call);

// Runs the CTAs one after the other. Throws std::runtime_error for a kernel that is not known, and where the threads of
// a CTA wait for each other; ends the process at an address that is wrong.
void launch(const void* kernel, int64_t blocks, int threads, int shared, const void* argument);

template <typename Params>
void know(void (*kernel)(Params)) {
  know(reinterpret_cast<const void*>(kernel),
       [kernel](const void* argument) { kernel(*static_cast<const Params*>(argument)); });
}

}  // namespace emulator

// Tells the emulator the kernels of an engine: tests/emulator/<engine>.cpp.
void know_portable_kernels();
