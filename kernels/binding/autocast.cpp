// Casts under autocast with the function that PyTorch's own autocast kernels call. It casts a float32 leaf that
// requires a gradient once per autocast region, and caches the result until PyTorch clears its cache. Python cannot
// access that cache, and the stable ABI does not export it.
#include "binding/autocast.h"

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>

namespace convt::binding {
namespace {

using torch::stable::Tensor;

// Return value with the calling convention of at::Tensor: one pointer, returned in memory because at::Tensor has a
// destructor. A handle of the stable ABI points to an at::Tensor on the heap.
struct Returned {
  void* pointer;
  ~Returned();  // never called: the handle's owner destroys the tensor
};

// Tensor at::autocast::cached_cast(ScalarType to, const Tensor& tensor, DeviceType device)
using CachedCast = Returned (*)(int8_t to, const void* tensor, int8_t device);

CachedCast find_cached_cast() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<CachedCast>(
      dlsym(library, "_ZN2at8autocast11cached_castEN3c1010ScalarTypeERKNS_6TensorENS1_10DeviceTypeE"));
}

// Null if this PyTorch does not export the function.
CachedCast cached_cast() {
  static const CachedCast found = find_cached_cast();
  return found;
}

// `half` is float16, otherwise bfloat16.
Tensor cast(const Tensor& tensor, bool half) {
  const CachedCast run = cached_cast();
  STD_TORCH_CHECK(run != nullptr, "convt_ext: this PyTorch does not export at::autocast::cached_cast");
  const int32_t dtype = half ? aoti_torch_dtype_float16() : aoti_torch_dtype_bfloat16();
  int32_t device = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device));
  auto* result = new Returned(run(static_cast<int8_t>(dtype), tensor.get(), static_cast<int8_t>(device)));
  return Tensor(reinterpret_cast<AtenTensorHandle>(result));
}

// Registered above autograd, so that autograd records the cast.
STABLE_TORCH_LIBRARY_IMPL(convt_ext, CompositeImplicitAutograd, library) {
  library.impl("_autocast", TORCH_BOX(&cast));
}

}  // namespace

bool has_cached_cast() { return cached_cast() != nullptr; }

}  // namespace convt::binding
