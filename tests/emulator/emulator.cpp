// Runs the threads of a CTA as fibers, and launches kernels by the address of their host function.
#include "emulator/emulator.h"

#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "emulator/device.h"
#include "emulator/fibers.h"

emulator::Index threadIdx, blockIdx, blockDim, gridDim;

extern "C" {
alignas(1024) thread_local unsigned char emulator_shared_memory[emulator::kMostSharedBytes];
}

namespace emulator {
namespace {

constexpr size_t kStackBytes = 512 << 10;

struct Copy {
  uint32_t shared;
  const void* global;
  int bytes;
  bool zeros;
};

// Reused by all CTAs.
struct Fiber {
  std::vector<unsigned char> stack;
  jmp_buf place;
  bool begun = false, done = false;
  std::deque<std::vector<Copy>> groups;
  std::string waits_for;
};

struct WarpMeeting : Meeting {
  int lanes = 32;  // lanes that have not ended
  void* brought[32] = {};
};

std::vector<Fiber> fibers(kMostThreads);
std::vector<WarpMeeting> warps;
Meeting block;
jmp_buf scheduler;
unsigned current;
int num_threads;
uint32_t shared_size;  // bytes of dynamic shared memory of the current launch
std::function<void()> body;

}  // namespace

int64_t progress;
bool may_conflict;
bool keeps_float_sums;
static int64_t turn;  // counts scheduling rounds over all warps

void fail(const std::string& what) {
  std::fprintf(stderr, "emulator: thread %u of block %u: %s\n", current, blockIdx.x, what.c_str());
  std::abort();
}

void require(bool condition, const char* words) {
  if (!condition) fail(std::string("this does not hold: ") + words);
}

unsigned current_thread() { return current; }

// Switches stacks with _longjmp: swapcontext() makes system calls, which would dominate the run time.
void yield(const std::string& what) {
  fibers[current].waits_for = what;
  if (_setjmp(fibers[current].place) == 0) _longjmp(scheduler, 1);
}

namespace {

void run_fiber() {
  for (;;) {
    body();
    fibers[current].done = true;
    ++progress;
    // Ended lanes no longer count in the warp's barrier.
    WarpMeeting& warp = warps[current / 32];
    if (--warp.lanes > 0 && warp.arrived == warp.lanes) {
      warp.arrived = 0;
      ++warp.number;
    }
    yield("nothing more");
  }
}

// Runs a thread until it waits.
__attribute__((noinline)) void resume(Fiber& fiber) {
  if (_setjmp(scheduler) != 0) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  fiber.stack.resize(kStackBytes);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.data();
  context.uc_stack.ss_size = fiber.stack.size();
  context.uc_link = nullptr;
  makecontext(&context, &run_fiber, 0);
  setcontext(&context);
}

}  // namespace

void meet(Meeting& meeting, int count) {
  const int64_t number = meeting.number;
  ++progress;
  if (++meeting.arrived == count) {
    meeting.arrived = 0;
    ++meeting.number;
    return;
  }
  while (meeting.number == number) yield(std::to_string(count) + " threads to meet");
}

unsigned char* shared_memory() { return emulator_shared_memory; }

void* shared_bytes(uint32_t address, int bytes) {
  if (address % bytes != 0) fail("address " + std::to_string(address) + " is no multiple of " + std::to_string(bytes));
  if (address + bytes > shared_size) fail("address " + std::to_string(address) + " is outside of shared memory");
  return shared_memory() + address;
}

void check_banks(const uint32_t* addresses, int count, int bytes) {
  if (may_conflict) return;
  constexpr uint32_t kBanksBytes = 128;
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      if (addresses[i] != addresses[j] && addresses[i] % kBanksBytes / bytes == addresses[j] % kBanksBytes / bytes) {
        fail("lanes read two places of one bank: " + std::to_string(addresses[i]) + ", " +
             std::to_string(addresses[j]));
      }
    }
  }
}

void let_others_run() {
  ++progress;
  for (const int64_t before = turn; turn == before;) yield("the others' turn");
}

void meet_block() { meet(block, num_threads); }

}  // namespace emulator

int __syncthreads_and(int predicate) {
  static int all;
  __syncthreads();  // the answer before this one has been read
  all = 1;
  __syncthreads();
  all &= predicate != 0;
  __syncthreads();
  return all;
}

namespace emulator {

void meet_warp(void* own, void (*work)(const void*, void* const*), const void* with) {
  WarpMeeting& warp = warps[current / 32];
  if (own != nullptr && warp.lanes < 32) fail("lanes of the warp have ended");
  warp.brought[current % 32] = own;
  if (warp.arrived == warp.lanes - 1) work(with, warp.brought);
  meet(warp, warp.lanes);
}

static void make(const Copy& copy) {
  void* to = shared_bytes(copy.shared, copy.bytes);
  if (copy.zeros) {
    memset(to, 0, copy.bytes);
  } else {
    memcpy(to, copy.global, copy.bytes);
  }
}

void copy_later(uint32_t shared, const void* global, int bytes, bool zeros) {
  shared_bytes(shared, bytes);
  if (reinterpret_cast<uintptr_t>(global) % bytes != 0) fail("a copy from an address that is not aligned");
  fibers[current].groups.back().push_back({shared, global, bytes, zeros});
}

std::function<void()> take_copies() {
  auto groups = std::exchange(fibers[current].groups, {});
  fibers[current].groups.emplace_back();
  return [groups] {
    for (const auto& group : groups) {
      for (const Copy& copy : group) make(copy);
    }
  };
}

void end_group_of_copies() { fibers[current].groups.emplace_back(); }

void make_all_copies_but(int pending_groups) {
  auto& groups = fibers[current].groups;
  // The last group is not committed, so no wait covers it.
  while (static_cast<int>(groups.size()) - 1 > pending_groups) {
    for (const Copy& copy : groups.front()) make(copy);
    groups.pop_front();
  }
}

namespace {

std::map<const void*, std::function<void(const void* const*)>>& kernels() {
  static std::map<const void*, std::function<void(const void* const*)>> known;
  return known;
}

// Runs a warp until each of its threads has ended or waits for other warps.
void run_warp(int warp) {
  for (int64_t before = -1; before != progress;) {
    before = progress;
    for (current = 32 * warp; current < static_cast<unsigned>(32 * warp + 32); ++current) {
      threadIdx = {current, 0, 0};
      if (!fibers[current].done) resume(fibers[current]);
    }
  }
}

// Describes the waits of all threads: the first thread of each distinct wait.
std::string waiting() {
  std::map<std::string, int> first;
  for (int i = num_threads - 1; i >= 0; --i) {
    if (!fibers[i].done) first[fibers[i].waits_for] = i;
  }
  std::string words = "as threads wait:";
  for (const auto& [what, thread] : first) words += " " + std::to_string(thread) + " for " + what + ";";
  return words;
}

void run_block(unsigned number) {
  blockIdx = {number, 0, 0};
  memset(shared_memory(), 0xff, kMostSharedBytes);  // NaN in every type
  warps.assign((num_threads + 31) / 32, WarpMeeting{});
  block = Meeting{};
  begin_block_of_hopper();
  for (int i = 0; i < num_threads; ++i) {
    fibers[i].done = false;
    fibers[i].groups.assign(1, {});
  }
  for (bool running = true; running;) {
    const int64_t before = progress;
    ++turn;
    // A warp runs as far ahead of the others as it can, which exposes missing barriers. Even CTAs start with the first
    // warp, odd CTAs with the last.
    const int num_warps = num_threads / 32;
    for (int i = 0; i < num_warps; ++i) run_warp(number % 2 == 0 ? i : num_warps - 1 - i);
    running = std::any_of(fibers.begin(), fibers.begin() + num_threads, [](const Fiber& one) { return !one.done; });
    if (running && progress == before) {
      const std::string words = waiting();
      for (Fiber& fiber : fibers) fiber.begun = false;  // abandon their stacks
      throw std::runtime_error("emulator: nothing can happen any more, " + words);
    }
  }
  end_block_of_hopper();
  const unsigned char *first = shared_memory() + shared_size, *last = shared_memory() + kMostSharedBytes;
  if (std::any_of(first, last, [](unsigned char byte) { return byte != 0xff; }))
    throw std::runtime_error("emulator: a kernel has written beyond its shared memory");
}

}  // namespace

void know(const void* kernel, std::function<void(const void* const*)> call) { kernels()[kernel] = std::move(call); }

void launch(const void* kernel, int64_t blocks, int threads, int shared, const void* const* arguments) {
  const auto found = kernels().find(kernel);
  if (found == kernels().end()) throw std::runtime_error("emulator: nobody has told what this kernel is");
  if (threads > kMostThreads || threads % 32 != 0)
    throw std::runtime_error("emulator: so many threads are not emulated");
  if (shared > kMostSharedBytes) throw std::runtime_error("emulator: more shared memory than there is");
  num_threads = threads;
  shared_size = static_cast<uint32_t>(shared);
  gridDim = {static_cast<unsigned>(blocks), 1, 1};
  blockDim = {static_cast<unsigned>(threads), 1, 1};
  body = [&] { found->second(arguments); };
  for (int64_t number = 0; number < blocks; ++number) run_block(static_cast<unsigned>(number));
}

}  // namespace emulator
