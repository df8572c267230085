// What the parts of the emulator know of the threads of the CTA that runs.
#pragma once

#include <cstdint>
#include <string>

namespace emulator {

// Ends the process.
[[noreturn]] void fail(const std::string& what);

unsigned current_thread();

// Lets other threads run, while this one waits for what these words say.
void yield(const std::string& what);

// Lets every other thread run as far as it can before this one goes on.
void let_others_run();

// Changes whenever something has happened: if it does not for a round of all threads, nothing ever will.
extern int64_t progress;

struct Meeting {
  int arrived = 0;
  int64_t number = 0;
};
// The thread waits here until so many have come.
void meet(Meeting& meeting, int count);

// Before the first thread of a CTA, and behind its last one (asynchronous.cpp, products.cpp).
void begin_block_of_hopper();
void end_block_of_hopper();
void begin_block_of_products();
void end_block_of_products();

}  // namespace emulator
