// Counts bank conflicts during planning.
// Must not know: torch, CUDA.
#pragma once

#include <cstdint>

namespace convt {

// The words that the lanes of a warp access in one instruction.
struct BankReads {
  int32_t words[32][32];  // distinct words per bank
  int32_t counts[32] = {};
  int32_t wavefronts = 0;

  void add(int32_t word) {
    const int32_t bank = word % 32;
    for (int32_t i = 0; i < counts[bank]; ++i) {
      if (words[bank][i] == word) return;
    }
    words[bank][counts[bank]++] = word;
    if (counts[bank] > wavefronts) wavefronts = counts[bank];
  }
};

}  // namespace convt
