// What a Hopper GPU does beside its threads: barriers in shared memory, copies that report to them, stores, and
// products of warpgroups. Each is done when somebody waits for it and not before or, where the test asks for it, at
// once.
#pragma once

#include <cstdint>
#include <functional>

namespace emulator {

// Of the launches to come: whether copies and stores, and whether products are done at once. A slot that is given away
// too soon shows where copies are and products are not.
extern bool copies_are_eager, products_are_eager;

void barrier_init(uint32_t barrier, uint32_t arrivals);
// One arrival, and so many bytes more that copies bring.
void barrier_arrive(uint32_t barrier, uint32_t bytes_to_come = 0);
// Until the barrier's phase of this parity has ended.
void barrier_wait(uint32_t barrier, uint32_t parity);
void copy_for_barrier(uint32_t barrier, uint32_t bytes, std::function<void()> copy);
// One arrival, once all copies of cp.async that this thread has asked for are made.
void arrive_after_copies(uint32_t barrier);

// `threads` threads meet at a barrier that has a number; or one arrives there and goes on.
void meet_at(int number, int threads);
void arrive_at(int number, int threads);

// Of this thread, as are groups of them.
void store_later(std::function<void()> store);
void end_group_of_stores();
void make_all_stores_but(int pending_groups);

// An operand in shared memory: descriptors' bits, and what they say of rows of 32 bytes along K, or of halves of a K
// that are neighbours.
struct Operand {
  uint32_t low, high;
  // The bytes of a shared address where 4 bytes of a row begin.
  const unsigned char* at(int row, int byte) const;
  // And where the halves of rows row and row + 1 lie, row being even, where the operand is transposed.
  const unsigned char* at_transposed(int row, int k) const;
};

enum class Format { kTf32, kFloat16, kBFloat16 };

// D[64, columns] = A B, plus D where `add` is true, of 32 bytes of K: what one of a warpgroup's threads says of it.
struct Product {
  Format format;
  int columns;
  float* d;
  const uint32_t* a;  // or null: the operand
  Operand of_a, of_b;
  bool add;
  bool is_transposed;  // both operands
};
void multiply_later(const Product& product);
void end_group_of_products();
void make_all_products_but(int pending_groups);

}  // namespace emulator
