#include "emulator/asynchronous.h"

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "emulator/device.h"
#include "emulator/fibers.h"

namespace emulator {
namespace {

// A pending copy of `bytes`, or a pending arrival.
struct Copy {
  uint32_t bytes, arrivals;
  std::function<void()> make;
};

struct Barrier {
  uint32_t arrivals = 0;  // per phase
  int64_t pending = 0, bytes = 0;  // arrivals and bytes that the current phase still waits for
  uint32_t parity = 0;
  std::deque<Copy> copies;
};

std::map<uint32_t, Barrier> barriers;
std::map<int, Meeting> meetings;
std::vector<std::deque<std::vector<std::function<void()>>>> stores(kMostThreads);

Barrier& barrier_at(uint32_t address) {
  shared_bytes(address, 8);
  const auto found = barriers.find(address);
  if (found == barriers.end()) fail("nobody has made a barrier at " + std::to_string(address));
  return found->second;
}

void end_phase_if_complete(Barrier& barrier) {
  ++progress;
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  barrier.pending = barrier.arrivals;
  barrier.parity ^= 1;
}

void make_copy(Barrier& barrier, const Copy& copy) {
  copy.make();
  barrier.bytes -= copy.bytes;
  barrier.pending -= copy.arrivals;
  end_phase_if_complete(barrier);
}

void make_now_or_later(Barrier& barrier, Copy copy) {
  if (copies_are_eager) {
    make_copy(barrier, copy);
  } else {
    barrier.copies.push_back(std::move(copy));
    ++progress;
  }
}

}  // namespace

bool copies_are_eager, products_are_eager;

void begin_block_of_hopper() {
  barriers.clear();
  meetings.clear();
  for (auto& groups : stores) groups.assign(1, {});
  begin_block_of_products();
}

void end_block_of_hopper() {
  for (const auto& [address, barrier] : barriers) {
    if (!barrier.copies.empty()) fail("nobody has waited for a copy that reports to " + std::to_string(address));
  }
  for (const auto& groups : stores) {
    if (groups.size() > 1 || !groups.front().empty()) fail("shared memory ends before a store has read it");
  }
  end_block_of_products();
}

void barrier_init(uint32_t address, uint32_t arrivals) {
  shared_bytes(address, 8);
  barriers[address] = {arrivals, arrivals, 0, 0, {}};
  ++progress;
}

void barrier_arrive(uint32_t address, uint32_t bytes_to_come) {
  Barrier& barrier = barrier_at(address);
  if (barrier.pending == 0) fail("more threads arrive than the barrier counts");
  barrier.bytes += bytes_to_come;
  --barrier.pending;
  const uint32_t parity = barrier.parity;
  end_phase_if_complete(barrier);
  // Waiting threads may run ahead of this one.
  if (copies_are_eager && barrier.parity != parity) let_others_run();
}

void barrier_wait(uint32_t address, uint32_t parity) {
  Barrier& barrier = barrier_at(address);
  while (barrier.parity == parity) {
    if (barrier.copies.empty()) {
      yield("barrier " + std::to_string(address) + ", which waits for " + std::to_string(barrier.pending) +
            " threads and " + std::to_string(barrier.bytes) + " bytes");
    } else {
      const Copy copy = barrier.copies.front();
      barrier.copies.pop_front();
      make_copy(barrier, copy);
    }
  }
}

void copy_for_barrier(uint32_t address, uint32_t bytes, std::function<void()> copy) {
  make_now_or_later(barrier_at(address), {bytes, 0, std::move(copy)});
}

void arrive_after_copies(uint32_t address) { make_now_or_later(barrier_at(address), {0, 1, take_copies()}); }

void meet_at(int number, int threads) { meet(meetings[number], threads); }

void arrive_at(int number, int threads) {
  Meeting& meeting = meetings[number];
  ++progress;
  if (++meeting.arrived < threads) return;
  meeting.arrived = 0;
  ++meeting.number;
}

void store_later(std::function<void()> store) {
  if (copies_are_eager) {
    store();
  } else {
    stores[current_thread()].back().push_back(std::move(store));
  }
}

void end_group_of_stores() { stores[current_thread()].emplace_back(); }

void make_all_stores_but(int pending_groups) {
  auto& groups = stores[current_thread()];
  while (static_cast<int>(groups.size()) - 1 > pending_groups) {
    for (const auto& store : groups.front()) store();
    groups.pop_front();
  }
}

}  // namespace emulator
