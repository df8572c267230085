// Asynchronous operations of a Hopper GPU: mbarriers, copies that complete on them, bulk stores, and wgmma. Each
// operation executes when a thread waits for it, not before. In eager mode it executes immediately.
#pragma once

#include <cstdint>
#include <functional>

namespace emulator {

// Eager mode of later launches, for copies and stores, and for products. Eager copies with lazy products expose a slot
// that is released too early.
extern bool copies_are_eager, products_are_eager;

void barrier_init(uint32_t barrier, uint32_t arrivals);
// Arrives once and adds `bytes_to_come` to the expected transaction bytes.
void barrier_arrive(uint32_t barrier, uint32_t bytes_to_come = 0);
// Waits until the barrier's phase of this parity completes.
void barrier_wait(uint32_t barrier, uint32_t parity);
void copy_for_barrier(uint32_t barrier, uint32_t bytes, std::function<void()> copy);
// Arrives once, after all cp.async copies of this thread have completed.
void arrive_after_copies(uint32_t barrier);

// Named barriers: meet_at() blocks until `threads` threads have arrived; arrive_at() arrives without blocking.
void meet_at(int number, int threads);
void arrive_at(int number, int threads);

// Bulk stores and their groups, per thread.
void store_later(std::function<void()> store);
void end_group_of_stores();
void make_all_stores_but(int pending_groups);

// A wgmma operand in shared memory: its matrix descriptor. A K step is 32 bytes, or transposed 16 halves.
struct Operand {
  uint32_t low, high;
  // Address of 4 bytes of a row, starting at byte `byte` of the K step.
  const unsigned char* at(int row, int byte) const;
  // Transposed operand: address of the halves of rows `row` (even) and row + 1.
  const unsigned char* at_transposed(int row, int k) const;
};

enum class Format { kTf32, kFloat16, kBFloat16 };

// One thread's view of a warpgroup product: D[64, columns] = A B, plus D if `add` is true, for 32 bytes of K.
struct Product {
  Format format;
  int columns;
  float* d;
  const uint32_t* a;  // registers, or null if A is in shared memory
  Operand of_a, of_b;
  bool add;
  bool is_transposed;  // both operands
};
void multiply_later(const Product& product);
void end_group_of_products();
void make_all_products_but(int pending_groups);

}  // namespace emulator
