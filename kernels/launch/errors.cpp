#include "launch/errors.h"

#include <stdexcept>

namespace convt {

bool is_of_earlier_kernel(cudaError_t status) {
  switch (status) {
    // What a kernel does while it runs. A launch itself fails of its arguments, its code or its resources.
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed: return true;
    default: return false;
  }
}

std::string words_of_earlier_kernel(cudaError_t status) {
  return std::string("CUDA error: ") + cudaGetErrorString(status) +
         ". A kernel that ran before this call of convt_ext left it; CUDA reports such errors late. "
         "CUDA_LAUNCH_BLOCKING=1 makes the call fail that launched the kernel";
}

void check_launch(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  if (is_of_earlier_kernel(status)) throw std::runtime_error(words_of_earlier_kernel(status));
  cudaGetLastError();  // the error is reported here; it must not surface again in somebody else's call
  throw std::runtime_error("convt_ext: " + what + " failed: " + cudaGetErrorString(status));
}

}  // namespace convt
