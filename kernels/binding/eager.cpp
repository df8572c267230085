// The ops of eager calls. A call is identified by an index of its arguments, because reading lists takes longer than
// finding a plan. The autograd node is one of PyTorch's.
//
// The stable ABI has no autograd nodes, and a node in Python costs a third of the time of a small backward pass.
// PyTorch has a node for convolutions of unknown devices: aten::convolution_overrideable saves input, weight and its
// lists, and its backward calls aten::convolution_backward_overrideable for the required gradients. PyTorch calls
// neither for CUDA tensors. This file implements both for CUDA, with the call's index as `groups` and empty lists.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "binding/call.h"

namespace convt::binding {
namespace {

using torch::stable::Tensor;
using torch::stable::detail::from;
using torch::stable::detail::to;
using List = std::vector<int64_t>;

struct Call {
  ConvArguments arguments;
  bool weight_channels_last;
  int64_t by_torch;  // run by PyTorch: 1 forward, 2 gradient of the input, 4 gradient of the weight
};

Call to_call(const List& numbers) {
  STD_TORCH_CHECK(
      numbers.size() == 17 || numbers.size() == 21,
      "convt_ext: numbers must be stride, padding and output_padding, 2 or 3 each, groups, dilation, 2 or 3, "
      "precision, channels_last, the weight's, the preferred candidates, 3, the directions of PyTorch, and one more, "
      "got a list of ",
      numbers.size());
  const int dims = numbers.size() == 17 ? 2 : 3;
  const auto list = [&](int begin) { return List(numbers.begin() + begin, numbers.begin() + begin + dims); };
  const int64_t* rest = numbers.data() + 4 * dims + 1;  // from the precision on
  for (int i = 3; i < 6; ++i) {
    STD_TORCH_CHECK(rest[i] >= 0, "convt_ext: a preferred candidate must not be negative, got ", rest[i]);
  }
  const ConvArguments arguments{list(0),
                                list(dims),
                                list(2 * dims),
                                numbers[3 * dims],
                                list(3 * dims + 1),
                                rest[0],
                                rest[1] != 0,
                                {rest[3], rest[4], rest[5]}};
  return {arguments, rest[2] != 0, rest[6]};
}

// Sizes are not part of the numbers, so a program has few different calls. Calls are never removed, because autograd
// nodes refer to their indices.
class Calls {
 public:
  int64_t remember(const List& numbers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = places_.find(numbers);
    if (known != places_.end()) return known->second;
    calls_.push_back(to_call(numbers));
    return places_[numbers] = static_cast<int64_t>(calls_.size()) - 1;
  }

  const Call& at(int64_t call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    STD_TORCH_CHECK(call >= 0 && call < static_cast<int64_t>(calls_.size()),
                    "convt_ext: no arguments are remembered by ", call);
    return calls_[static_cast<size_t>(call)];  // deque elements do not move
  }

 private:
  std::mutex mutex_;
  std::deque<Call> calls_;
  std::map<List, int64_t> places_;
};

Calls& calls() {
  static Calls* const only = new Calls;  // never destroyed: threads may still call during process exit
  return *only;
}

int64_t remember(const List& numbers) { return calls().remember(numbers); }

Tensor forward_by_torch(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                        const ConvArguments& arguments) {
  std::array<StableIValue, 9> stack{from(input),
                                    from(weight),
                                    from(bias),
                                    from(arguments.stride),
                                    from(arguments.padding),
                                    from(arguments.dilation),
                                    from(true),
                                    from(arguments.output_padding),
                                    from(arguments.groups)};
  const QuietFailures quiet;
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::convolution", "", stack.data(), TORCH_ABI_VERSION));
  return to<Tensor>(stack[0]);
}

Tensor forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t number) {
  const auto& [arguments, weight_channels_last, by_torch] = calls().at(number);
  if ((by_torch & 1) != 0) return forward_by_torch(input, weight, bias, arguments);
  return run_forward(input, weight, bias, arguments);
}

Tensor forward_then(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t number,
                    const List& operations, const std::vector<double>& numbers, const std::vector<Tensor>& tensors) {
  const auto& [arguments, weight_channels_last, by_torch] = calls().at(number);
  const EpilogueArguments epilogue{operations, numbers, tensors};
  if ((by_torch & 1) == 0) return run_forward(input, weight, bias, arguments, std::nullopt, &epilogue);
  Tensor result = forward_by_torch(input, weight, bias, arguments);
  const bool exact = arguments.precision <= static_cast<int64_t>(Precision::kAten);
  finish(result, exact, operations, numbers, tensors);
  return result;
}

Tensor forward_packed(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t number,
                      Tensor packed, bool is_packed, const List& operations, const std::vector<double>& numbers,
                      const std::vector<Tensor>& tensors) {
  const EpilogueArguments epilogue{operations, numbers, tensors};
  return run_forward_packed(input, weight, bias, calls().at(number).arguments, packed, is_packed,
                            operations.empty() ? nullptr : &epilogue);
}

using Gradients = std::tuple<std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>>;

Gradients gradients(const Tensor& grad_output, const Tensor& input, const Tensor& weight, int64_t number,
                    int64_t wanted) {
  const auto& [arguments, weight_channels_last, by_torch] = calls().at(number);
  const int64_t theirs = by_torch >> 1 & wanted & 3, ours = wanted & ~theirs;
  Gradients found;
  if ((ours & 1) != 0) std::get<0>(found) = run_grad_input(grad_output, weight, arguments);
  if ((ours & 2) != 0) {
    ConvArguments of_weight = arguments;
    if (arguments.channels_last != weight_channels_last) of_weight.preferred[2] = 0;  // refers to another problem
    of_weight.channels_last = weight_channels_last;
    if ((ours & 4) != 0) std::get<2>(found).emplace();
    Tensor* grad_bias = (ours & 4) != 0 ? &*std::get<2>(found) : nullptr;
    std::get<1>(found) = run_grad_weight(grad_output, input, of_weight, std::nullopt, grad_bias);
  } else if ((ours & 4) != 0) {
    std::get<2>(found) = run_grad_bias(grad_output);
  }
  if (theirs == 0) return found;
  const std::array<bool, 3> mask{(theirs & 1) != 0, (theirs & 2) != 0, false};
  std::array<StableIValue, 11> stack{from(grad_output),
                                     from(input),
                                     from(weight),
                                     from(std::optional<List>()),
                                     from(arguments.stride),
                                     from(arguments.padding),
                                     from(arguments.dilation),
                                     from(true),
                                     from(arguments.output_padding),
                                     from(arguments.groups),
                                     from(torch::headeronly::HeaderOnlyArrayRef<bool>(mask))};
  const QuietFailures quiet;
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::convolution_backward", "", stack.data(), TORCH_ABI_VERSION));
  const std::array<Tensor, 3> results{to<Tensor>(stack[0]), to<Tensor>(stack[1]), to<Tensor>(stack[2])};
  if (mask[0]) std::get<0>(found) = results[0];
  if (mask[1]) std::get<1>(found) = results[1];
  return found;
}

// Calls Python. Throws std::runtime_error with the error text of a failure there.
Gradients gradients_again(const Tensor& grad_output, const Tensor& input, const Tensor& weight, int64_t number,
                          int64_t wanted) {
  std::array<StableIValue, 5> stack{from(grad_output), from(input), from(weight), from(number), from(wanted)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("convt_ext::_gradients_again", "", stack.data(), TORCH_ABI_VERSION));
  Gradients found{to<std::optional<Tensor>>(stack[0]), to<std::optional<Tensor>>(stack[1]),
                  to<std::optional<Tensor>>(stack[2])};
  if (const auto words = to<std::optional<Tensor>>(stack[3]); words.has_value()) {
    throw std::runtime_error(
        std::string(static_cast<const char*>(words->const_data_ptr()), static_cast<size_t>(words->numel())));
  }
  return found;
}

// Whether the tensor is a dual tensor of forward-mode AD. Only PyTorch's operator supports these.
bool has_tangent(const Tensor& tensor) {
  std::array<StableIValue, 2> stack{from(tensor), from(int64_t{0})};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::_unpack_dual", "", stack.data(), TORCH_ABI_VERSION));
  const Tensor primal = to<Tensor>(stack[0]), tangent = to<Tensor>(stack[1]);
  return tangent.defined();
}

void check_recorded(const List& stride, const List& padding, const List& dilation, bool transposed,
                    const List& output_padding) {
  STD_TORCH_CHECK(stride.empty() && padding.empty() && dilation.empty() && output_padding.empty() && transposed,
                  "convt_ext: convolution_overrideable has no kernel for CUDA but for convt_ext's own calls; "
                  "torch.nn.functional has PyTorch's convolutions");
}

Tensor recorded_forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                        const List& stride, const List& padding, const List& dilation, bool transposed,
                        const List& output_padding, int64_t call) {
  check_recorded(stride, padding, dilation, transposed, output_padding);
  return forward(input, weight, bias, call);
}

// Replaces autograd's kernel, which would record a second derivative that interprets the lists as strides.
std::tuple<Tensor, Tensor, Tensor> recorded_gradients(const Tensor& grad_output, const Tensor& input,
                                                      const Tensor& weight, const List& stride, const List& padding,
                                                      const List& dilation, bool transposed, const List& output_padding,
                                                      int64_t call, const std::vector<bool>& mask) {
  check_recorded(stride, padding, dilation, transposed, output_padding);
  const int64_t wanted = mask[0] + 2 * mask[1] + 4 * mask[2];
  Gradients found;
  bool again = aoti_torch_grad_mode_is_enabled() || has_tangent(grad_output);
  if (!again) {
    try {
      found = gradients(grad_output, input, weight, call, wanted);
    } catch (const std::exception&) {
      again = true;  // another plan or PyTorch's operator may need less memory
    }
  }
  if (again) found = gradients_again(grad_output, input, weight, call, wanted);
  auto or_undefined = [](const std::optional<Tensor>& tensor) { return tensor.has_value() ? *tensor : Tensor(); };
  return {or_undefined(std::get<0>(found)), or_undefined(std::get<1>(found)), or_undefined(std::get<2>(found))};
}

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CompositeExplicitAutograd, library) {
  library.impl("_remember", TORCH_BOX(&remember));
}

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CUDA, library) {
  library.impl("_forward", TORCH_BOX(&forward));
  library.impl("_forward_then", TORCH_BOX(&forward_then));
  library.impl("_forward_packed", TORCH_BOX(&forward_packed));
  library.impl("_gradients", TORCH_BOX(&gradients));
}

STABLE_TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("convolution_overrideable", TORCH_BOX(&recorded_forward));
}

STABLE_TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) {
  library.impl("convolution_backward_overrideable", TORCH_BOX(&recorded_gradients));
}

}  // namespace
}  // namespace convt::binding
