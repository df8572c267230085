// The GPU as seen through the CUDA runtime and PyTorch: its numbers and its current stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "plan/device.h"

namespace convt::binding {

// Numbers of a GPU for planning, asked once per device. Throws std::runtime_error.
const DeviceInfo& device_info(int64_t index);

// PyTorch's current stream on that device.
cudaStream_t current_stream(int32_t index);

// Until that stream has done what is queued. Harmless to a graph that another thread is capturing.
void wait_for_stream(int32_t index);

}  // namespace convt::binding
