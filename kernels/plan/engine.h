// The engines: their numbers in plans, and their names in explanations and errors.
// Must not know: torch, CUDA.
#pragma once

#include <cstdint>

namespace convt {

enum class Engine : int32_t {
  kSimt = 0,
  kThin = 1,
  kWgmma = 2,
  kFlat = 3,
  kPatch = 4,
  kMma = 5,
  kStrided = 6,
  kWindow = 7,
  kNhwc = 8,
  kScatter = 9,
  kUpsample = 10
};

inline const char* name_of(Engine engine) {
  switch (engine) {
    case Engine::kSimt: return "simt";
    case Engine::kThin: return "thin";
    case Engine::kWgmma: return "wgmma_sm90a";
    case Engine::kFlat: return "flat_sm90a";
    case Engine::kPatch: return "patch_sm90a";
    case Engine::kMma: return "mma_sm90a";
    case Engine::kStrided: return "strided_sm90a";
    case Engine::kWindow: return "window_sm90a";
    case Engine::kNhwc: return "nhwc_sm90a";
    case Engine::kScatter: return "scatter_sm90a";
    case Engine::kUpsample: return "upsample_sm90a";
  }
  return "unknown";
}

}  // namespace convt
