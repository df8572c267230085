"""The ops without the Python package: one call and its candidates, with poisoned outputs, compared bit for bit.

Called by the GPU tests and by tools/sanitize_workload.py, so independent of pytest. Imports convt_ext only to
register the ops; other tests check the arguments that the Python functions pass.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from kernel_instances import kernel_instances

import convt_ext  # noqa: F401

DIRECTIONS = ("forward", "grad_input", "grad_weight")
PRECISIONS = {"ieee": 0, "aten": 1, "tf32x3": 2, "tf32": 3, "half": 4}
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}

# The engines that multiply on tensor cores, and the classes they compute.
TENSOR_CORE_ENGINES = (
    "flat_sm90a",
    "patch_sm90a",
    "rows_sm90a",
    "mma_sm90a",
    "nhwc_sm90a",
    "scatter_sm90a",
    "correlate_sm90a",
    "portable",
)
TENSOR_CORE_CLASSES = {
    "tf32": (torch.float32, "tf32"),
    "tf32x3": (torch.float32, "tf32x3"),
    "f16": (torch.float16, "half"),
    "bf16": (torch.bfloat16, "half"),
}

# What has kernels of its own: a dtype and an order of the sums.
CLASSES = {
    "ieee_f32": (torch.float32, "ieee"),
    "aten_f32": (torch.float32, "aten"),
    "ieee_f64": (torch.float64, "ieee"),
    "ieee_f16": (torch.float16, "ieee"),
    "ieee_bf16": (torch.bfloat16, "ieee"),
}

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def kernel_names() -> list[str]:
    """The kernel instances of the forward pass, by the names that plans give them, from kernels/*/instances.h.

    Read from the text and not from the binary, because the list of tests must not depend on the machine.
    """
    return [kernel for kernel in kernel_instances("exact") if "_grad_" not in kernel]


def gradient_kernels(direction: str) -> list[str]:
    """The kernel instances of "grad_input" or "grad_weight", in the same way."""
    return [kernel for kernel in kernel_instances("exact") if f"_{direction}_" in kernel]


def tensor_core_kernels() -> list[str]:
    """The kernel instances of the engines on tensor cores, of all three directions."""
    return kernel_instances("tensor cores")


def portable_kernels() -> list[str]:
    """The tensor-core kernels that GPUs other than Hopper can run."""
    return [kernel for kernel in tensor_core_kernels() if kernel.startswith("portable_")]


def class_of(kernel: str) -> str:
    """ "simt_ieee_f32_8x8" computes in class "ieee_f32"."""
    return "_".join(kernel.split("_")[1:3])


def run_candidate(direction: str, candidate: int, arguments: Sequence[Any], steps: Sequence[Any] = ((), (), ())):
    """Runs that candidate of the planner. `arguments`: those of `convt_ext::forward`, with the direction's operands."""
    return torch.ops.convt_ext._run_candidate(DIRECTIONS.index(direction), candidate, *arguments, *map(list, steps))


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of `convt_ext::forward`."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    output_padding: tuple[int, ...] = (0, 0)
    groups: int = 1
    dilation: tuple[int, ...] = (1, 1)
    precision: str = "ieee"
    channels_last: bool = False

    @classmethod
    def of(cls, case: Any, dtype=torch.float32, precision="ieee", channels_last=False, device="cuda", seed=0) -> Call:
        """A call of a case of tests/cases.py."""
        tensors = case.tensors(dtype, device=device, seed=seed)
        return cls(*tensors, **case.arguments, precision=precision, channels_last=channels_last)

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of PyTorch's functional."""
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        return {name: getattr(self, name) for name in names}

    def run(self, candidate: int | None = None) -> torch.Tensor:
        """Returns the op's result with the planner's choice, or with one of its candidates."""
        arguments = (*self._tensors_and_lists(), PRECISIONS[self.precision], self.channels_last)
        if candidate is None:
            return torch.ops.convt_ext.forward(*arguments)
        return run_candidate("forward", candidate, arguments)

    def candidates(self, device: list[int] | None = None, direction: str = "forward") -> list[dict[str, Any]]:
        """The planner's candidates on this call's GPU, in the order of `run_candidate`."""
        device = device or torch.ops.convt_ext.device(self.x.device.index)
        x, weight, bias, *lists = self._tensors_and_lists()
        text = torch.ops.convt_ext.explain(
            list(x.shape), list(x.stride()), list(weight.shape), list(weight.stride()), bias is not None, *lists,
            DTYPES[x.dtype], PRECISIONS[self.precision], self.channels_last, device, DIRECTIONS.index(direction),
        )  # fmt: skip
        return json.loads(bytes(text.tolist()))["candidates"]

    def torch(self) -> torch.Tensor:
        """Returns the result of PyTorch's operator for the same tensors."""
        call = F.conv_transpose3d if self.x.dim() == 5 else F.conv_transpose2d
        return call(self.x, self.weight, self.bias, **self.arguments)

    def replace(self, **changes: Any) -> Call:
        return dataclasses.replace(self, **changes)

    def map(self, change) -> Call:
        """Returns the call with changed tensors."""
        bias = None if self.bias is None else change(self.bias)
        return self.replace(x=change(self.x), weight=change(self.weight), bias=bias)

    def _tensors_and_lists(self) -> tuple[Any, ...]:
        lists = (list(self.stride), list(self.padding), list(self.output_padding), self.groups, list(self.dilation))
        return (self.x, self.weight, self.bias, *lists)


@dataclasses.dataclass(frozen=True)
class GradientCall:
    """The arguments of `convt_ext::grad_input` (`other` is the weight) or `convt_ext::grad_weight` (the input).

    `channels_last` is the format of the result.
    """

    direction: str
    grad_output: torch.Tensor
    other: torch.Tensor
    call: Call
    channels_last: bool = False

    @classmethod
    def of(cls, direction: str, call: Call, seed: int = 1, channels_last: bool = False, integers=False) -> GradientCall:
        """Returns the gradient call of a forward call, with a random contiguous grad_output."""
        generator = torch.Generator().manual_seed(seed)
        shape = tuple(call.replace(x=call.x.to("meta"), weight=call.weight.to("meta"), bias=None).torch().shape)
        if integers:
            values = torch.randint(-2, 3, shape, generator=generator)
        else:
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
        other = call.weight if direction == "grad_input" else call.x
        return cls(direction, values.to(call.x.device, call.x.dtype), other, call, channels_last)

    def replace(self, **changes: Any) -> GradientCall:
        return dataclasses.replace(self, **changes)

    def map(self, change) -> GradientCall:
        return self.replace(grad_output=change(self.grad_output), other=change(self.other), call=self.call.map(change))

    def in_layout(self, channels_last: bool) -> GradientCall:
        """Returns the call with result and dense grad_output in that format, as `candidates` assumes."""
        memory_format = memory_format_of(channels_last, self.grad_output.dim())
        # Not `contiguous`: a tensor of one channel is dense in both formats and would keep its strides.
        grad_output = torch.empty_like(self.grad_output, memory_format=memory_format).copy_(self.grad_output)
        return self.replace(grad_output=grad_output, channels_last=channels_last)

    def run(self, candidate: int | None = None) -> torch.Tensor:
        call = self.call
        arguments = (
            self.grad_output, self.other, list(call.stride), list(call.padding), list(call.output_padding),
            call.groups, list(call.dilation), PRECISIONS[call.precision], self.channels_last,
        )  # fmt: skip
        if candidate is None:
            return getattr(torch.ops.convt_ext, self.direction)(*arguments)
        return run_candidate(self.direction, candidate, (*arguments[:2], None, *arguments[2:]))

    def run_with_bias(self, candidate: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of weight and bias, asked for together, by the plan with that number among the candidates."""
        call = self.call
        numbers = (
            *call.stride, *call.padding, *call.output_padding, call.groups, *call.dilation, PRECISIONS[call.precision],
            int(self.channels_last), int(self.channels_last), 0, 0, candidate, 0, 1,
        )  # fmt: skip
        number = torch.ops.convt_ext._remember(numbers)
        tensors = self.grad_output, self.other, call.weight
        _, of_weight, of_bias = torch.ops.convt_ext._gradients(*tensors, number, 2 + 4)
        return of_weight, of_bias

    def candidates(self, device: list[int] | None = None) -> list[dict[str, Any]]:
        return self.call.replace(channels_last=self.channels_last).candidates(device, self.direction)

    def torch(self) -> torch.Tensor:
        """Returns the result of PyTorch's operator for the same tensors."""
        call = self.call
        results = torch.ops.aten.convolution_backward(
            self.grad_output, call.x, call.weight, None, list(call.stride), list(call.padding), list(call.dilation),
            True, list(call.output_padding), call.groups,
            [self.direction == "grad_input", self.direction == "grad_weight", False],
        )  # fmt: skip
        return results[0] if self.direction == "grad_input" else results[1]


def forced(call: Call | GradientCall, engines: Collection[str] = ()) -> list[tuple[int, dict[str, Any]]]:
    """Returns the candidates of a call, or those of some engines, each with its number.

    There is at least one, because a test without candidates would check nothing.
    """
    plans = call.candidates()
    found = [(number, plan) for number, plan in enumerate(plans) if not engines or plan["engine"] in engines]
    assert found, f"no candidate of {engines or 'any engine'}, only of {sorted({plan['engine'] for plan in plans})}"
    return found


def words_of(number: int, plan: dict[str, Any]) -> str:
    """Returns the name of a candidate in failures."""
    return f"candidate {number}, {plan['kernel']}: {plan}"


def numbered(call: Call | GradientCall, engines: Collection[str] = ()) -> list[tuple[int, str]]:
    """Returns what `forced` does, with names instead of plans."""
    return [(number, words_of(number, plan)) for number, plan in forced(call, engines)]


def memory_format_of(channels_last: bool, dim: int) -> torch.memory_format:
    """Returns the format of tensors with 4 or 5 axes."""
    if not channels_last:
        return torch.contiguous_format
    return torch.channels_last_3d if dim == 5 else torch.channels_last


def copy_of(tensor: torch.Tensor, device: torch.device | str | None = None) -> torch.Tensor:
    """Copies `tensor` with its strides, offset and alignment, and with the memory around it."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = tensor.new_empty(0).set_(tensor.untyped_storage(), 0, (elements,), (1,))
    memory = memory.to(device or tensor.device, copy=True)
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def changed(tensor: torch.Tensor, index: tuple[int, ...], value: float) -> torch.Tensor:
    """A copy, in the same layout, with another value at one index."""
    copy = copy_of(tensor)
    copy[index] = value
    return copy


def nan_like(tensor: torch.Tensor) -> torch.Tensor:
    """Returns NaN with the strides of `tensor`."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.new_full((extent,), float("nan")).as_strided(tensor.shape, tensor.stride())


def _poison(tensor: torch.Tensor, numel: int, workspace_bytes: int) -> tuple[int, ...]:
    """Writes NaN to the future memory of the next call's result and workspace, and returns their addresses."""
    blocks = [torch.full((numel,), float("nan"), dtype=tensor.dtype, device=tensor.device)]
    if workspace_bytes > 0:  # these bytes are NaN in every dtype
        blocks.append(torch.full((workspace_bytes,), 255, dtype=torch.uint8, device=tensor.device))
    return tuple(block.data_ptr() for block in blocks)


def run_poisoned(
    call: Call | GradientCall, numel: int, candidate: int | None = None, workspace_bytes: int = 0
) -> torch.Tensor:
    """Runs a call with NaN in the memory of its output and workspace, so that unwritten elements show.

    The caching allocator returns the last freed blocks to the next requests of their sizes, in order: every op
    allocates its result first, and then a workspace. (PyTorch's switch
    `torch.utils.deterministic.fill_uninitialized_memory` acts only in deterministic mode.) Python's garbage collector
    and the first request of a size may change the state of the allocator; the call is then repeated.

    Raises:
        AssertionError: the result is still in other memory (with PyTorch's own allocator).
    """
    tensor = call.x if isinstance(call, Call) else call.grad_output
    native = torch.cuda.get_allocator_backend() == "native"
    for _ in range(4):
        places = _poison(tensor, numel, workspace_bytes)
        if native and workspace_bytes > 0 and _poison(tensor, numel, workspace_bytes) != places:
            continue  # the address of the workspace is unknown: requests must repeat
        result = call.run(candidate)
        if result.data_ptr() == places[0] or not native:
            return result
        del result
    raise AssertionError(
        f"the result is not in the memory that was poisoned, so it is not shown that all of it was written: "
        f"{numel} elements of {tensor.dtype}, candidate {candidate}"
    )


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as integers: -0 is not 0, and a NaN is what it is."""
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def assert_same_bits(result: torch.Tensor, expected: torch.Tensor, what: object = "") -> None:
    """Compares on any devices. A failure names the first different output and their number."""
    assert result.dtype is expected.dtype, (result.dtype, expected.dtype, what)
    assert result.shape == expected.shape, (result.shape, expected.shape, what)
    if result.device != expected.device:
        result, expected = result.cpu(), expected.cpu()
    if same_bits(result, expected):
        return
    wrong = (bits(result) != bits(expected)).nonzero()
    index = tuple(wrong[0].tolist())
    raise AssertionError(
        f"{len(wrong)} of {result.numel()} outputs differ in bits, first at {index}: "
        f"got {result[index].item()!r}, expected {expected[index].item()!r}; {what}"
    )
