// The ops' schemas, and the library's build information.
#include <cuda_runtime_api.h>
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <string>

#include "binding/autocast.h"

// Arguments that identify a plan. Sizes are those of the forward pass.
#define QUESTION                                                                                                 \
  "(int[] input_size, int[] input_stride, int[] weight_size, int[] weight_stride, bool has_bias, int[] stride, " \
  "int[] padding, int[] output_padding, int groups, int[] dilation, int dtype, int precision, "                  \
  "bool channels_last, int[] device, int direction"

// precision: 0 ieee, 1 aten, 2 tf32x3, 3 tf32, 4 half (float16 and bfloat16 on tensor cores). dtype: 0 float32, 1
// float64, 2 float16, 3 bfloat16. device: compute capability * 10, SMs, shared memory per block and SM, clock in MHz,
// copy GB/s. direction: 0 forward, 1 grad_input, 2 grad_weight. Sizes are those of the forward pass. In a gradient,
// channels_last determines the strides of the result.
STABLE_TORCH_LIBRARY(convt_ext, library) {
  library.def(
      "forward(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] output_padding, "
      "int groups, int[] dilation, int precision, bool channels_last) -> Tensor");
  // input_size and weight_size follow from the other sizes. channels_last is the format of the result.
  library.def(
      "grad_input(Tensor grad_output, Tensor weight, int[] stride, int[] padding, int[] output_padding, int groups, "
      "int[] dilation, int precision, bool channels_last) -> Tensor");
  library.def(
      "grad_weight(Tensor grad_output, Tensor input, int[] stride, int[] padding, int[] output_padding, int groups, "
      "int[] dilation, int precision, bool channels_last) -> Tensor");
  library.def("grad_bias(Tensor grad_output) -> Tensor");
  // For tests: runs candidate `candidate` of candidate_plans(). Operands: input, weight, bias; grad_output, weight; or
  // grad_output, input. The lists at the end are epilogue steps, as in _forward_then.
  library.def(
      "_run_candidate(int direction, int candidate, Tensor first, Tensor second, Tensor? bias, int[] stride, "
      "int[] padding, int[] output_padding, int groups, int[] dilation, int precision, bool channels_last, "
      "int[] operations, float[] numbers, Tensor[] tensors) -> Tensor");
  // Eager calls (eager.cpp). _remember returns an index for the 11 numbers (in three dimensions 15) of the arguments
  // from stride to channels_last, and 6 more: whether the gradient of the weight is also in channels_last; the
  // candidates of the forward pass and the gradients of input and weight that replace the planner's choice, 0 for none;
  // a bit mask of the directions that PyTorch runs (1, 2, 4 in this order); and one number that only the caller uses.
  // `wanted`: bit mask of gradients, 1 (input), 2 (weight) and 4 (bias).
  library.def("_remember(int[] numbers) -> int");
  library.def("_forward(Tensor input, Tensor weight, Tensor? bias, int call) -> Tensor");
  // Forward with epilogue steps (convt_ext/epilogue/steps.py): an operation per step, + 256 if its operand is the next
  // of `tensors`, and two numbers per step. The kernel fuses the steps that it supports, and a pass over the result
  // runs the rest. `_finish` is only that pass, over a dense result. exact: every step rounds like PyTorch's separate
  // operations.
  library.def(
      "_forward_then(Tensor input, Tensor weight, Tensor? bias, int call, int[] operations, float[] numbers, Tensor[] "
      "tensors) -> Tensor");
  // Like `_forward_then`, with memory for the packed weight of at least the plan's packed_bytes. After a call has
  // filled it, calls of the same problem may pass is_packed.
  library.def(
      "_forward_packed(Tensor input, Tensor weight, Tensor? bias, int call, Tensor(a!) packed, bool is_packed, int[] "
      "operations, float[] numbers, Tensor[] tensors) -> Tensor");
  library.def("_finish(Tensor(a!) result, bool exact, int[] operations, float[] numbers, Tensor[] tensors) -> ()");
  library.def(
      "_gradients(Tensor grad_output, Tensor input, Tensor weight, int call, int wanted) -> (Tensor?, Tensor?, "
      "Tensor?)");
  // Implemented in Python (autograd.py): the same gradients, recorded if required, with all fallbacks. The last result
  // is the error text of a failure, as the bytes of a CPU tensor.
  library.def(
      "_gradients_again(Tensor grad_output, Tensor input, Tensor weight, int call, int wanted) -> (Tensor?, Tensor?, "
      "Tensor?, Tensor?)");
  // A cast to float16 or bfloat16 through PyTorch's autocast cache (autocast.cpp).
  library.def("_autocast(Tensor tensor, bool half) -> Tensor");
  // The planner's choice, or the preferred candidate: its estimate and PyTorch's time (0: unknown) in ns, and the bytes
  // of the packed weight. Empty if no kernel supports the problem. A launch of that problem uses this plan.
  library.def("plan" QUESTION ", int preferred) -> int[]");
  // Plans this direction and `others` concurrently, so that later calls of plan() hit the cache.
  library.def("plan_ahead" QUESTION ", int[] others) -> ()");
  // The candidates worth a benchmark, the planner's choice first, with three numbers each: candidate index, estimate in
  // ns, workspace bytes. Empty if no kernel supports the problem.
  library.def("contenders" QUESTION ") -> int[]");
  // The whole plan and all candidates: JSON, as the bytes of a CPU tensor.
  library.def("explain" QUESTION ") -> Tensor");
  // Entries and bytes of the plan cache, and its limit in bytes.
  library.def("plan_cache_size() -> int[]");
  library.def("device(int index) -> int[]");
}

namespace {

// One contiguous string, because tools search for it in the file. A compiler may split a longer text into words.
__attribute__((used)) constexpr char kSourcesDigest[] = CONVT_SOURCES_DIGEST;

// The build of this library, as JSON.
std::string build_info() {
  std::string architectures;
  const std::string list = CONVT_ARCHITECTURES;  // "8.0;9.0a"
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(';', begin), list.size());
    architectures += (begin == 0 ? "\"" : ", \"") + list.substr(begin, end - begin) + "\"";
    begin = end + 1;
  }
  const int cuda = CUDART_VERSION;
  return "{\"version\": \"" CONVT_VERSION "\", \"cuda\": \"" + std::to_string(cuda / 1000) + "." +
         std::to_string(cuda % 1000 / 10) + "\", \"architectures\": [" + architectures +
         "], \"optimized\": " CONVT_OPTIMIZED ", \"sources\": \"" + kSourcesDigest + "\"}";
}

}  // namespace

// convt_ext/environment/_extension.py calls these two through ctypes. The library uses no Python functions, so that one
// file loads into every interpreter. They are not ops, because PyTorch leaks strings that an op of the stable ABI
// returns.
extern "C" __attribute__((visibility("default"))) const char* convt_ext_build_info() {
  static const std::string info = build_info();
  return info.c_str();
}

extern "C" __attribute__((visibility("default"))) int convt_ext_has_autocast() {
  return convt::binding::has_cached_cast();
}
