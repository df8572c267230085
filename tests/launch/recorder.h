// Launches that are written down instead of made. See recorder.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct RecordedLaunch {
  std::string kernel;  // its name; of two kernels of an instance, which
  std::string name;    // in errors
  int64_t blocks;
  uint32_t threads_x, threads_y;
  int32_t shared_bytes;
  bool waits_itself;
  int32_t cluster;
  std::vector<std::string> arguments;  // the bytes that the kernel would get
};

// Of this thread, since the last call.
std::vector<RecordedLaunch> take_launches();

namespace convt {

// Where several files compile a list, a file's function returns null for the rows of the others.
template <typename Row>
const char* name_if(bool compiled, const Row& row) {
  return compiled ? row.name : nullptr;
}

}  // namespace convt
