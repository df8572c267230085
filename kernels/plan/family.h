// A kernel family, as the planner sees it. families/ defines the list, because it includes the engines and the planner
// does not.
// Must not know: torch, CUDA, any family.
#pragma once

#include <cstddef>

#include "plan/device.h"
#include "problem/epilogue.h"
#include "problem/problem.h"

namespace convt {

struct Candidates;

// A family is one way to compute some problems: a kernel with its instances, a tile (the numbers that distinguish its
// plans), a search for plans and a launcher. Several families may share an engine, which is the folder with most of
// their code.
struct Family {
  const char* name;
  const char* engine;
  // Whether the family has kernels for the problem's class on this GPU. It does not check shapes.
  bool (*serves)(const ConvTProblem& problem, const DeviceInfo& device);
  // The epilogue steps that its kernels run on accumulators of two-dimensional problems (problem/epilogue.h).
  epilogue::Fuses fuses;
  // Adds the family's candidates for a problem that passes `serves`. Adds none if no kernel fits.
  void (*add)(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans);
};

// The steps that the family's kernels run for this problem. Kernels of volumes run none: their channels may be pairs of
// planes or columns, for which per-channel operands would be wrong.
inline epilogue::Fuses fuses_of(const Family& family, const ConvTProblem& problem) {
  return is_volume(problem) ? epilogue::Fuses::kNothing : family.fuses;
}

struct Families {
  const Family* first;
  size_t count;

  const Family* begin() const { return first; }
  const Family* end() const { return first + count; }
};

// All families. On equal estimates the earlier family comes first. Defined in families/families.cpp.
Families families();

// Predicates for `serves`. Only any_class() and on_hopper_in_any_depth() accept problems with a depth axis
// (problem/volume.h).
bool any_class(const ConvTProblem& problem, const DeviceInfo& device);
bool sums_as_ieee(const ConvTProblem& problem, const DeviceInfo& device);
bool on_hopper_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device);
bool on_hopper_in_any_depth(const ConvTProblem& problem, const DeviceInfo& device);
bool on_portable_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
