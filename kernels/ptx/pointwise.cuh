// Floating-point instructions without a C++ equivalent (PTX ISA, "Floating Point Instructions").
#pragma once

namespace convt::ptx {

// min(max(value, low), high), propagating NaN: max.NaN.f32 and min.NaN.f32, which need sm_80.
__device__ __forceinline__ float clamp(float value, float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  const float clamped = fminf(fmaxf(value, low), high);
  return value != value ? value : clamped;
#else
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(low));
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(high));
  return value;
#endif
}

// tanh.approx.f32: within 2^-11 of the result. Needs sm_75.
__device__ __forceinline__ float rough_tanh(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
  return tanhf(value);
#else
  asm("tanh.approx.f32 %0, %0;" : "+f"(value));
  return value;
#endif
}

// ex2.approx.ftz.f32: 2^value within 2^-22 of the result; results below 2^-126 are 0.
__device__ __forceinline__ float rough_exp2(float value) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}

// lg2.approx.ftz.f32: log2(value), with relative error 2^-22, or absolute error 2^-22 for values between 0.5 and 2.
__device__ __forceinline__ float rough_log2(float value) {
  asm("lg2.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}

// rcp.approx.ftz.f32: 1 / value within 2^-23 of the result; 0 for values beyond 2^126.
__device__ __forceinline__ float rough_reciprocal(float value) {
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}

}  // namespace convt::ptx
