// Warpgroup products (wgmma) on the registers of 128 threads and on shared memory.
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "emulator/asynchronous.h"
#include "emulator/device.h"
#include "emulator/fibers.h"
#include "ptx/mma_sm80.cuh"

#pragma GCC optimize("O3")  // dominates the emulator's run time

namespace emulator {
namespace {

constexpr int kWarpgroups = kMostThreads / 128, kRows = 64, kMostColumns = 256, kBytesOfK = 32;

std::vector<std::deque<std::vector<Product>>> products(kMostThreads);
std::array<Meeting, kWarpgroups> warpgroups;

// Element k of a K step of 32 bytes.
float element_of(Format format, uint32_t word, int k) {
  switch (format) {
    case Format::kTf32: return convt::ptx::tf32_of(word, 0);
    case Format::kFloat16: return convt::ptx::f16_of(word, k % 2);
    default: return convt::ptx::bf16_of(word, k % 2);
  }
}

uint32_t word_at(const unsigned char* bytes) {
  uint32_t word;
  memcpy(&word, bytes, sizeof(word));
  return word;
}

// Executes the product of a warpgroup's 128 threads.
void multiply(const std::array<const Product*, 128>& of) {
  const Product& one = *of[0];
  const int bytes = one.format == Format::kTf32 ? 4 : 2, depth = kBytesOfK / bytes;
  for (const Product* other : of) {
    if (other->columns != one.columns || other->format != one.format || other->add != one.add ||
        other->is_transposed != one.is_transposed || (other->a == nullptr) != (one.a == nullptr) ||
        other->of_b.low != one.of_b.low) {
      fail("the threads of a warpgroup multiply different things");
    }
  }
  static float a[kRows][16], b[16][kMostColumns];
  const auto element_at = [&](const Operand& operand, int row, int k) {
    if (!one.is_transposed) return element_of(one.format, word_at(operand.at(row, k * bytes / 4 * 4)), k);
    return element_of(one.format, word_at(operand.at_transposed(row / 2 * 2, k)), row);
  };
  for (int row = 0; row < kRows; ++row) {
    const int first = row / 16 * 32 + row % 8 * 4;
    for (int k = 0; k < depth; ++k) {
      // The first two words of a thread are from its two rows; the last two are from the same rows, 16 bytes further
      // along K.
      const int byte = k * bytes / 4 * 4;
      a[row][k] = one.a == nullptr
                      ? element_at(one.of_a, row, k)
                      : element_of(one.format, of[first + byte % 16 / 4]->a[byte / 16 * 2 + row % 16 / 8], k);
    }
  }
  for (int column = 0; column < one.columns; ++column) {
    for (int k = 0; k < depth; ++k) b[k][column] = element_at(one.of_b, column, k);
  }
  for (int row = 0; row < kRows; ++row) {
    static float sums[kMostColumns];
    const int first = row / 16 * 32 + row % 8 * 4, half = row % 16 / 8;
    for (int column = 0; column < one.columns; ++column) {
      const float* d = of[first + column % 8 / 2]->d;
      sums[column] = one.add ? d[column / 8 * 4 + 2 * half + column % 2] : 0;
    }
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < one.columns; ++column) sums[column] += a[row][k] * b[k][column];
    }
    for (int column = 0; column < one.columns; ++column) {
      of[first + column % 8 / 2]->d[column / 8 * 4 + 2 * half + column % 2] = sums[column];
    }
  }
}

void multiply_all_but(int warpgroup, int pending_groups) {
  auto* threads = &products[128 * warpgroup];
  while (static_cast<int>(threads[0].size()) - 1 > pending_groups) {
    for (size_t i = 0; i < threads[0].front().size(); ++i) {
      std::array<const Product*, 128> of;
      for (int thread = 0; thread < 128; ++thread) {
        if (threads[thread].size() != threads[0].size() ||
            threads[thread].front().size() != threads[0].front().size()) {
          fail("the threads of a warpgroup wait for different products");
        }
        of[thread] = &threads[thread].front()[i];
      }
      multiply(of);
    }
    for (int thread = 0; thread < 128; ++thread) threads[thread].pop_front();
  }
}

}  // namespace

const unsigned char* Operand::at(int row, int byte) const {
  const uint32_t begin = (low & 0x3fff) << 4, step = (high & 0x3fff) << 4, mode = high >> 30;
  const uint32_t along_k = (low >> 16 & 0x3fff) << 4;
  uint32_t address;
  if (mode == 0) {  // no swizzle: core matrices of 8 rows x 16 bytes
    address = begin + row / 8 * step + byte / 16 * along_k + row % 8 * 16 + byte % 16;
  } else {  // swizzled rows of 128, 64 or 32 bytes
    address = begin + row / 8 * step + row % 8 * (256u >> mode) + byte;
    address ^= (address >> 7 & ((8u >> (mode - 1)) - 1)) << 4;
  }
  return static_cast<const unsigned char*>(shared_bytes(address, 4));
}

const unsigned char* Operand::at_transposed(int row, int k) const {
  const uint32_t begin = (low & 0x3fff) << 4, along_k = (high & 0x3fff) << 4, along_rows = (low >> 16 & 0x3fff) << 4;
  const uint32_t mode = high >> 30;
  if (mode == 0) fail("a transposed operand has rows of 128, 64 or 32 bytes");
  const uint32_t halves = 128u >> mode, bytes = 2 * halves;  // per row
  uint32_t address = begin + row / halves * along_rows + k / 8 * along_k + k % 8 * bytes + row % halves * 2;
  address ^= (address >> 7 & ((8u >> (mode - 1)) - 1)) << 4;
  return static_cast<const unsigned char*>(shared_bytes(address, 4));
}

void begin_block_of_products() {
  for (auto& groups : products) groups.assign(1, {});
  warpgroups = {};
}

void end_block_of_products() {
  for (const auto& groups : products) {
    if (groups.size() > 1 || !groups.front().empty()) fail("nobody has waited for a product");
  }
}

void multiply_later(const Product& product) { products[current_thread()].back().push_back(product); }

void end_group_of_products() {
  products[current_thread()].emplace_back();
  if (products_are_eager) make_all_products_but(0);
}

void make_all_products_but(int pending_groups) {
  const auto warpgroup = static_cast<int>(current_thread() / 128);
  Meeting& meeting = warpgroups[warpgroup];
  if (meeting.arrived == 127) multiply_all_but(warpgroup, pending_groups);
  meet(meeting, 128);
}

}  // namespace emulator
