// Thread scheduling of the current CTA, for the emulator's sources.
#pragma once

#include <cstdint>
#include <string>

namespace emulator {

// Aborts the process with an error.
[[noreturn]] void fail(const std::string& what);

unsigned current_thread();

// Lets other threads run while this one waits. `what` describes the wait.
void yield(const std::string& what);

// Lets every other thread run as far as it can before this one continues.
void let_others_run();

// Incremented on every event. If a round over all threads does not change it, the CTA is deadlocked.
extern int64_t progress;

struct Meeting {
  int arrived = 0;
  int64_t number = 0;
};
// Blocks until `count` threads have arrived.
void meet(Meeting& meeting, int count);

// Called before the first thread of a CTA starts, and after the last one ends (asynchronous.cpp, products.cpp).
void begin_block_of_hopper();
void end_block_of_hopper();
void begin_block_of_products();
void end_block_of_products();

}  // namespace emulator
