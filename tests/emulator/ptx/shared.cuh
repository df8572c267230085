// Emulates the part of kernels/ptx/shared.cuh that the emulated kernels use.
#pragma once

#include <cstdint>

#include "emulator/device.h"

namespace convt::ptx {

inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - emulator::shared_memory());
}

// With bank checks, the 32 lanes must read at the same time.
inline uint32_t load_shared(uint32_t shared) {
  if (!emulator::may_conflict) {
    emulator::meet_warp(&shared, [](void* const* lanes) {
      uint32_t addresses[32];
      for (int lane = 0; lane < 32; ++lane) addresses[lane] = *static_cast<uint32_t*>(lanes[lane]);
      emulator::check_banks(addresses, 32, 4);
    });
  }
  uint32_t word;
  memcpy(&word, emulator::shared_bytes(shared, 4), sizeof(word));
  return word;
}

// Lane 8 * i + r supplies the address of row r of matrix i; rows[i][r] contains its 16 bytes.
template <typename Take>
void load_rows(uint32_t (&words)[4], uint32_t shared, Take take) {
  struct Lane {
    uint32_t address;
    uint32_t words[4];
  } lane{shared, {}};
  emulator::meet_warp(&lane, [take](void* const* lanes) {
    unsigned char rows[4][8][16];
    uint32_t addresses[32];
    for (int i = 0; i < 32; ++i) {
      addresses[i] = static_cast<Lane*>(lanes[i])->address;
      memcpy(rows[i / 8][i % 8], emulator::shared_bytes(addresses[i], 16), 16);
    }
    for (int i = 0; i < 4; ++i) emulator::check_banks(addresses + 8 * i, 8, 16);
    for (int t = 0; t < 32; ++t) {
      for (int i = 0; i < 4; ++i) static_cast<Lane*>(lanes[t])->words[i] = take(rows[i], t);
    }
  });
  memcpy(words, lane.words, sizeof(words));
}

inline void load_matrices(uint32_t (&words)[4], uint32_t shared) {
  load_rows(words, shared, [](unsigned char (&rows)[8][16], int t) {
    uint32_t word;
    memcpy(&word, rows[t / 4] + 4 * (t % 4), sizeof(word));
    return word;
  });
}

inline void load_matrices_transposed(uint32_t (&words)[4], uint32_t shared) {
  load_rows(words, shared, [](unsigned char (&rows)[8][16], int t) {
    uint16_t halves[2];
    for (int i = 0; i < 2; ++i) memcpy(&halves[i], rows[t % 4 * 2 + i] + 2 * (t / 4), sizeof(uint16_t));
    return static_cast<uint32_t>(halves[0] | static_cast<uint32_t>(halves[1]) << 16);
  });
}

inline void store_shared(uint32_t shared, uint32_t word) { memcpy(emulator::shared_bytes(shared, 4), &word, 4); }
inline void store_shared(uint32_t shared, const uint32_t (&words)[4]) {
  memcpy(emulator::shared_bytes(shared, 16), words, 16);
}

template <int kOffset>
void load_shared(float (&r)[4], uint32_t shared) {
  memcpy(r, emulator::shared_bytes(shared + kOffset, 16), 16);
}

template <int kOffset>
void load_shared(float (&r)[2], uint32_t shared) {
  memcpy(r, emulator::shared_bytes(shared + kOffset, 8), 8);
}
template <int kOffset>
void load_shared(double (&r)[2], uint32_t shared) {
  memcpy(r, emulator::shared_bytes(shared + kOffset, 16), 16);
}
inline void load_shared(uint32_t (&words)[2], uint32_t shared) { memcpy(words, emulator::shared_bytes(shared, 8), 8); }
inline void load_shared(uint32_t (&words)[4], uint32_t shared) {
  memcpy(words, emulator::shared_bytes(shared, 16), 16);
}

inline uint32_t load_shared_16(uint32_t shared) {
  uint16_t half;
  memcpy(&half, emulator::shared_bytes(shared, 2), 2);
  return half;
}
inline uint32_t load_shared_or_zero(uint32_t shared, bool exists) {
  uint32_t word = 0;
  if (exists) memcpy(&word, emulator::shared_bytes(shared, 4), 4);
  return word;
}

inline void store_shared(uint32_t shared, const uint32_t (&words)[2]) {
  memcpy(emulator::shared_bytes(shared, 8), words, 8);
}
inline void store_shared_16(uint32_t shared, uint16_t half) { memcpy(emulator::shared_bytes(shared, 2), &half, 2); }

inline void opaque(int32_t&) {}

}  // namespace convt::ptx
