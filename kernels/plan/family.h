// A kernel family, as the planner sees it. families/ defines the list: it includes the engines, the planner does not.
// Must not know: torch, CUDA, any family.
#pragma once

#include <cstddef>

#include "plan/device.h"
#include "problem/problem.h"

namespace convt {

struct Candidates;

// A family is one way to compute some problems: a kernel with its instances, a tile (the numbers that distinguish its
// plans), a search for plans and a launcher. Several families may share an engine, which is a folder with most of their
// code.
struct Family {
  const char* name;
  const char* engine;
  // Whether it has kernels for the problem's class on this GPU, before it looks at shapes.
  bool (*serves)(const ConvTProblem& problem, const DeviceInfo& device);
  // Whether its kernels run the steps of an epilogue on their accumulators (problem/epilogue.h).
  bool fuses;
  // Adds its candidates of a problem that it `serves`, none if it has no kernel for it.
  void (*add)(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans);
};

struct Families {
  const Family* first;
  size_t count;

  const Family* begin() const { return first; }
  const Family* end() const { return first + count; }
};

// All families. If two plans have the same estimate, that of the earlier family comes first. Defined in
// families/families.cpp.
Families families();

// Values of `serves`.
bool any_class(const ConvTProblem& problem, const DeviceInfo& device);
bool sums_as_ieee(const ConvTProblem& problem, const DeviceInfo& device);
bool on_hopper_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device);
bool on_portable_tensor_cores(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
