// Launches of emulated kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace emulator {

// Whether lanes may read several places of one bank at once, and each for itself, in the launches to come.
extern bool may_conflict;

// What runs one thread of a kernel, known by its host function; it is given the kernel's arguments.
void know(const void* kernel, std::function<void(const void* const* arguments)> call);

// Runs the CTAs one after the other. Throws std::runtime_error for a kernel that is not known, and where the threads of
// a CTA wait for each other; ends the process at an address that is wrong.
void launch(const void* kernel, int64_t blocks, int threads, int shared, const void* const* arguments);

// The kernel as launch() takes it, which from now on is known.
template <typename... Params>
const void* known(void (*kernel)(Params...)) {
  const auto* address = reinterpret_cast<const void*>(kernel);
  know(address, [kernel](const void* const* arguments) {
    [=]<size_t... kNumbers>(std::index_sequence<kNumbers...>) {
      kernel(*static_cast<const std::remove_const_t<Params>*>(arguments[kNumbers])...);
    }(std::index_sequence_for<Params...>{});
  });
  return address;
}

}  // namespace emulator
