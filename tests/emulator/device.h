// CUDA device code on the host. The threads of a CTA are fibers of one CPU thread, which switch at barriers and at
// warp-level operations. Included before the kernels' headers; ptx/ replaces the wrappers of kernels/ptx with files of
// the same names. Kernels are compiled unmodified, for Hopper.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

// All fibers of a CTA run in one thread of the process. Inside of a function, thread_local is static too.
#undef __shared__
#define __shared__ thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
// Forced inlining doubles the time that the kernels take to compile, and the emulated kernels run no faster with it.
#undef __forceinline__
#define __forceinline__ inline
#undef __noinline__
#define __noinline__ __attribute__((noinline))
// After CUDA's headers, which would otherwise assume nvcc.
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL
#define __builtin_assume(condition) emulator::require(condition, #condition)

namespace emulator {

inline constexpr int kMostThreads = 1024;
inline constexpr int kMostSharedBytes = 228 << 10;

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

unsigned char* shared_memory();  // of the current CTA

// Aborts the process with `words` if the condition, which the kernel guarantees, is false.
void require(bool condition, const char* words);

// Blocks until all threads of the CTA have arrived.
void meet_block();
// Synchronizes the warp. The last lane to arrive calls work(with, lanes) once. `lanes` contains the `own` pointers of
// the 32 lanes, whose data work() may change.
void meet_warp(void* own, void (*work)(const void* with, void* const* lanes), const void* with);
template <typename Work>
void meet_warp(void* own, const Work& work) {
  meet_warp(own, [](const void* with, void* const* lanes) { (*static_cast<const Work*>(with))(lanes); }, &work);
}

// Records a cp.async copy. It executes when it is waited for, not before.
void copy_later(uint32_t shared, const void* global, int bytes, bool zeros);
void end_group_of_copies();
void make_all_copies_but(int pending_groups);
// Returns a function that executes all of this thread's copies that no wait has completed.
std::function<void()> take_copies();

extern bool may_conflict;  // emulator.h

// Aborts the process if two of these simultaneous reads hit different addresses of one bank.
void check_banks(const uint32_t* addresses, int count, int bytes);

// Host address of a shared-memory address. Aborts the process if it is misaligned or outside the CTA's shared memory.
void* shared_bytes(uint32_t address, int bytes);

}  // namespace emulator

extern emulator::Index threadIdx, blockIdx, blockDim, gridDim;

using std::isinf;
using std::isnan;
using std::max;
using std::min;

inline void __syncthreads() { emulator::meet_block(); }
int __syncthreads_and(int predicate);
inline void __syncwarp() {
  emulator::meet_warp(nullptr, [](void* const*) {});
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  struct Pair {
    T value;
    int from;
  } pair{value, from};
  emulator::meet_warp(&pair, [](void* const* lanes) {
    T values[32];
    for (int lane = 0; lane < 32; ++lane) values[lane] = static_cast<Pair*>(lanes[lane])->value;
    for (int lane = 0; lane < 32; ++lane) {
      auto* of_lane = static_cast<Pair*>(lanes[lane]);
      of_lane->value = values[of_lane->from % 32];
    }
  });
  return pair.value;
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ bits);
}
// A lane without such a neighbour keeps its own value.
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, value, lane + lanes < 32 ? lane + lanes : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, value, lane >= lanes ? lane - lanes : lane);
}

namespace emulator {

// Every lane gets the values of all lanes, combined from lane 0 on.
template <typename T, typename Combine>
T reduce_warp(T value, const Combine& combine) {
  meet_warp(&value, [&combine](void* const* lanes) {
    T all = *static_cast<T*>(lanes[0]);
    for (int lane = 1; lane < 32; ++lane) all = combine(all, *static_cast<T*>(lanes[lane]));
    for (int lane = 0; lane < 32; ++lane) *static_cast<T*>(lanes[lane]) = all;
  });
  return value;
}

}  // namespace emulator

inline int __reduce_max_sync(unsigned, int value) {
  return emulator::reduce_warp(value, [](int a, int b) { return std::max(a, b); });
}
template <typename T>
T __reduce_add_sync(unsigned, T value) {
  return emulator::reduce_warp(value, [](T a, T b) { return a + b; });
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  return emulator::reduce_warp(static_cast<unsigned>(predicate != 0) << threadIdx.x % 32,
                               [](unsigned a, unsigned b) { return a | b; });
}
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == 0xffffffffu; }
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
// Byte i of the result is the byte of {b, a} that digit i of `selector` selects.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<uint32_t>(bits)); }
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline int __float_as_int(float value) { return static_cast<int>(__float_as_uint(value)); }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
inline float __expf(float value) { return std::exp(value); }
inline float __logf(float value) { return std::log(value); }
inline float __fdividef(float a, float b) { return a / b; }
