// Records launches instead of executing them. See recorder.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct RecordedLaunch {
  std::string kernel;  // kernel name, with the variant if an instance has two kernels
  std::string name;    // name for error messages
  int64_t blocks;
  uint32_t threads_x, threads_y;
  int32_t shared_bytes;
  bool waits_itself;
  int32_t cluster;
  std::vector<std::string> arguments;  // argument bytes
};

// Returns this thread's launches since the last call.
std::vector<RecordedLaunch> take_launches();

namespace convt {

// If several files compile a list, each file's function returns null for the rows of the others.
template <typename Row>
const char* name_if(bool compiled, const Row& row) {
  return compiled ? row.name : nullptr;
}

}  // namespace convt
