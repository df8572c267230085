// Launches emulated kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace emulator {

// Whether later launches permit bank conflicts between lanes. With true, each lane reads independently.
extern bool may_conflict;

// Registers the function that runs one thread of a kernel. `kernel` is the address of the host function; the kernel's
// arguments are passed to `call`.
// Whether sums of slabs of halves are float32 in the next launches, without a final rounding.
extern bool keeps_float_sums;

void know(const void* kernel, std::function<void(const void* const* arguments)> call);

// Runs the CTAs one after another. Throws std::runtime_error for an unregistered kernel and for a deadlock. Aborts the
// process on an illegal address.
void launch(const void* kernel, int64_t blocks, int threads, int shared, const void* const* arguments);

// Registers the kernel and returns its address for launch().
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
