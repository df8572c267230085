// The ops' schemas, and what the library reports about itself.
#include <cuda_runtime_api.h>
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <string>

#include "binding/autocast.h"

// Of a plan: sizes are the forward pass's.
#define QUESTION                                                                                                 \
  "(int[] input_size, int[] input_stride, int[] weight_size, int[] weight_stride, bool has_bias, int[] stride, " \
  "int[] padding, int[] output_padding, int groups, int[] dilation, int dtype, int precision, "                  \
  "bool channels_last, int[] device, int direction"

// precision: 0 ieee, 1 aten, 2 tf32x3, 3 tf32, 4 half (float16 and bfloat16 on tensor cores). dtype: 0 float32, 1
// float64, 2 float16, 3 bfloat16. device: compute capability * 10, SMs, shared memory per block and SM, clock in MHz,
// copy GB/s. direction: 0 forward, 1 grad_input, 2 grad_weight; sizes are the forward pass's, of a gradient the strides
// of the result follow from channels_last.
STABLE_TORCH_LIBRARY(convt_ext, library) {
  library.def(
      "forward(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] output_padding, "
      "int groups, int[] dilation, int precision, bool channels_last) -> Tensor");
  // For tests and tuning: runs candidate number `candidate` of the plan's list.
  library.def(
      "forward_candidate(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
      "int[] output_padding, int groups, int[] dilation, int precision, bool channels_last, int candidate) -> Tensor");
  // input_size and weight_size follow from the other sizes. channels_last is the format of the result.
  library.def(
      "grad_input(Tensor grad_output, Tensor weight, int[] stride, int[] padding, int[] output_padding, int groups, "
      "int[] dilation, int precision, bool channels_last) -> Tensor");
  library.def(
      "grad_input_candidate(Tensor grad_output, Tensor weight, int[] stride, int[] padding, int[] output_padding, "
      "int groups, int[] dilation, int precision, bool channels_last, int candidate) -> Tensor");
  library.def(
      "grad_weight(Tensor grad_output, Tensor input, int[] stride, int[] padding, int[] output_padding, int groups, "
      "int[] dilation, int precision, bool channels_last) -> Tensor");
  library.def(
      "grad_weight_candidate(Tensor grad_output, Tensor input, int[] stride, int[] padding, int[] output_padding, "
      "int groups, int[] dilation, int precision, bool channels_last, int candidate) -> Tensor");
  library.def("grad_bias(Tensor grad_output) -> Tensor");
  // What eager calls run (eager.cpp). _remember gives a number to the arguments above from stride to channels_last, 11
  // in all, and to who computes what, 6 more: whether the weight's gradient is in channels_last too; the candidates of
  // the forward pass and the gradients of input and weight that are preferred to the planner's choice, 0 where none is;
  // which of these three are PyTorch's (1, 2, 4, added up); and one that means something to the caller alone. `wanted`
  // adds up 1 (of input), 2 (of weight) and 4 (of bias).
  library.def("_remember(int[] numbers) -> int");
  library.def("_forward(Tensor input, Tensor weight, Tensor? bias, int call) -> Tensor");
  // With the steps of an epilogue behind it (convt_ext/epilogue.py): the operation of each, + 256 where its operand is
  // the next of `tensors`, and two numbers for each. They run on the kernel's accumulators as far as it can, the rest
  // in a pass over the result. `_finish` is that pass alone, over a dense result; exact: every step rounds as PyTorch's
  // separate operations do.
  library.def(
      "_forward_then(Tensor input, Tensor weight, Tensor? bias, int call, int[] operations, float[] numbers, Tensor[] "
      "tensors) -> Tensor");
  // As `_forward_then`, with memory for the weight as the plan packs it: at least the plan's packed_bytes. After a call
  // has filled it, calls of the same problem may pass is_packed.
  library.def(
      "_forward_packed(Tensor input, Tensor weight, Tensor? bias, int call, Tensor(a!) packed, bool is_packed, int[] "
      "operations, float[] numbers, Tensor[] tensors) -> Tensor");
  library.def("_finish(Tensor(a!) result, bool exact, int[] operations, float[] numbers, Tensor[] tensors) -> ()");
  // For tests: as forward_candidate.
  library.def(
      "_forward_then_candidate(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
      "int[] output_padding, int groups, int[] dilation, int precision, bool channels_last, int candidate, "
      "int[] operations, float[] numbers, Tensor[] tensors) -> Tensor");
  library.def(
      "_gradients(Tensor grad_output, Tensor input, Tensor weight, int call, int wanted) -> (Tensor?, Tensor?, "
      "Tensor?)");
  // Made of Python (autograd.py): the same gradients, recorded where that is asked for, and whatever went wrong. The
  // last result is what failed, in words, as the bytes of a CPU tensor.
  library.def(
      "_gradients_again(Tensor grad_output, Tensor input, Tensor weight, int call, int wanted) -> (Tensor?, Tensor?, "
      "Tensor?, Tensor?)");
  // A cast to float16 or bfloat16 that PyTorch's autocast keeps as it keeps its own (autocast.cpp).
  library.def("_autocast(Tensor tensor, bool half) -> Tensor");
  // The planner's choice, or the candidate that is preferred to it: its estimate and PyTorch's time (0: not known) in
  // ns, and the bytes of the packed weight. Empty where no kernel of ours has a tile for the problem. A launch of that
  // problem finds this very plan.
  library.def("plan" QUESTION ", int preferred) -> int[]");
  // Has plan() of this direction and of the others find their choices remembered: all are planned at the same time.
  library.def("plan_ahead" QUESTION ", int[] others) -> ()");
  // The candidates that are worth a measurement, the planner's choice first, three numbers each: the candidate's, its
  // estimate in ns, the bytes of its workspace. Empty where no kernel of ours has a tile for the problem.
  library.def("contenders" QUESTION ") -> int[]");
  // The whole plan and all candidates: JSON, as the bytes of a CPU tensor.
  library.def("explain" QUESTION ") -> Tensor");
  // Entries and bytes that remembered plans take, and the bytes that they never pass.
  library.def("plan_cache_size() -> int[]");
  library.def("device(int index) -> int[]");
}

namespace {

// In one piece, as tools look for it in the file: a compiler may store a longer text by its words.
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

// convt_ext/_extension.py calls these two through ctypes. The library uses no function of Python's, so that one file
// loads into every interpreter. They are no ops, because PyTorch leaks strings that an op of the stable ABI returns.
extern "C" __attribute__((visibility("default"))) const char* convt_ext_build_info() {
  static const std::string info = build_info();
  return info.c_str();
}

extern "C" __attribute__((visibility("default"))) int convt_ext_has_autocast() {
  return convt::binding::has_cached_cast();
}
