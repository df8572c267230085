"""`report`: lists which implementation runs each transposed convolution of a program, per layer and direction.

Runs the program once under a `__torch_function__` mode that watches PyTorch's functions, and asks routing.py and the
planner what each call would run. Under such a mode a convt_ext call runs PyTorch's operator and passes its keywords
to the mode (functional.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from .bench.floors import Rates, floor_us, rates_for
from .bench.layers import Layer
from .dispatch import planner, routing, scopes
from .dispatch.auto_dispatch import AutoDispatch
from .dispatch.directions import NativeConv, grad_mask_of
from .dispatch.precision import CLASSES
from .dispatch.request import reason_of
from .environment import _torch
from .explain import device_numbers
from .tuning import choices, restoring

_DIRECTIONS = {choices.FORWARD: "forward", choices.GRAD_INPUT: "input", choices.GRAD_WEIGHT: "weight"}

NOT_ASKED = "PyTorch's function was called; convt_ext.enable() or convt_ext.convert(model) replaces it"


@dataclass(frozen=True)
class Line:
    """One direction of a layer's calls with the same sizes.

    Attributes:
        layer: the module's name in the model; empty if no module of the model made the call.
        direction: "forward", or "input" or "weight" for the gradients that a backward pass will compute.
        call: sizes of input and weight, their dtype, and the function if it is not two-dimensional.
        number: the number of such calls.
        runs: "convt_ext" or "torch".
        kernel: the kernel of convt_ext; empty if PyTorch's operator runs.
        us: estimated or measured time of the implementation that runs, in microseconds; None if unknown.
        other_us: time of the other implementation.
        reason: why, in one line.
        floor_us: minimum time of any implementation, by the bytes to move and the operations to compute; None if
            floors were not requested, if `us` is None, or if the rates of the GPU are unknown.
    """

    layer: str
    direction: str
    call: str
    number: int = 1
    runs: str = "torch"
    kernel: str = ""
    us: float | None = None
    other_us: float | None = None
    reason: str = ""
    floor_us: float | None = None


@dataclass(frozen=True)
class Report:
    """The result of `report`; `str()` returns a table.

    Attributes:
        lines: in the order of the calls.
        device: description of the GPU that the report applies to.
    """

    lines: tuple[Line, ...]
    device: str

    def __str__(self) -> str:
        if not self.lines:
            return "no transposed convolution was called"
        reasons = list(dict.fromkeys(line.reason for line in self.lines if line.us is None and line.runs == "torch"))
        has_floors = any(line.floor_us is not None for line in self.lines)
        rows = [["layer", "call", "direction", "runs", "us", "other us", *["floor us"] * has_floors, "kernel"]]
        for line in self.lines:
            layer = f"{line.layer} ({line.number} times)" if line.number > 1 else line.layer
            kernel = f"reason {reasons.index(line.reason) + 1}" if line.reason in reasons else line.kernel
            times = [_time(line.us), _time(line.other_us), *[_time(line.floor_us, 1)] * has_floors]
            rows.append([layer, line.call, line.direction, line.runs, *times, kernel])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([f"on {self.device}", *table, *(f"reason {i}: {text}" for i, text in enumerate(reasons, 1))])


def _time(us: float | None, decimals: int = 0) -> str:
    return "-" if us is None else f"{us:.{decimals}f}"


def report(
    target: nn.Module | Callable[..., Any],
    /,
    *inputs: Any,
    device: int | str | torch.device | Sequence[int] | None = None,
    floors: bool = False,
    **named: Any,
) -> Report:
    """Reports which implementation runs each transposed convolution of `target(*inputs, **named)`, and why.

    The target runs once, with PyTorch's operator, without a backward pass and without compilation. Gradients are
    reported if the call would record them. Buffers, gradients and random number generators are restored.

    Args:
        target: a module or a function.
        inputs, named: its arguments.
        device: the GPU to report for, as in `convt_ext.explain`; None is the GPU of the tensors, else an H200.
        floors: whether to add the minimum time of any implementation on that GPU: each tensor moved once, at the rate
            of a copy, or the products at the peak rate of the precision class, whichever takes longer. Known for the
            GPUs whose names `device` accepts, and for an installed H100 (SXM) or H200.

    Returns:
        A `Report` to print. Times come from a benchmark or a tuning file if there is one, else from the cost model.

    Raises:
        The errors of `target`.

    Example:
        >>> import torch, convt_ext
        >>> model = convt_ext.convert(torch.nn.Sequential(torch.nn.ConvTranspose2d(8, 4, 4)))
        >>> found = convt_ext.report(model, torch.randn(1, 8, 5, 5), device="H100")
        >>> [(line.layer, line.direction) for line in found.lines]
        [('0', 'forward'), ('0', 'weight')]
    """
    watcher = _Watcher(device, floors)
    names = {module: name for name, module in target.named_modules()} if isinstance(target, nn.Module) else {}
    records = torch.is_grad_enabled()

    def watched(*args: Any, **kwargs: Any) -> Any:
        eagerly = torch.compiler.set_stance("force_eager")
        with torch.set_grad_enabled(records), watcher, watcher.naming(names), eagerly:
            return target(*args, **kwargs)

    restoring.run(watched, inputs, named, backward=False)
    lines = tuple(dataclasses.replace(line, number=number) for line, number in Counter(watcher.lines).items())
    return Report(lines, watcher.device_name or "no GPU")


class _Watcher(TorchFunctionMode):
    def __init__(self, device: Any, floors: bool) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self.device_name = ""
        self._device = device
        self._floors = floors
        self._modules: list[str] = []
        self._requests: list[str | None] = []

    @contextmanager
    def naming(self, names: dict[nn.Module, str]) -> Iterator[None]:
        """Inside, calls are assigned to the module that makes them."""

        def before(module: nn.Module, _: Any) -> None:
            self._modules.append(names.get(module, ""))

        def after(module: nn.Module, *_: Any) -> None:
            self._modules.pop()

        with register_module_forward_pre_hook(before), register_module_forward_hook(after, always_call=True):
            yield

    def is_asked(self, requested: str | None) -> None:
        """Records the keywords of a convt_ext call that is about to call PyTorch's function."""
        self._requests.append(requested)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked, self._requests = self._requests, []
        for dims, builtin in _torch.CONV_TRANSPOSE.items():
            if function is builtin:
                self._note(dims, asked, *args, **kwargs)
        return function(*args, **kwargs)

    def _note(
        self, dims: int, asked: list[str | None], input: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1,
        padding=0, output_padding=0, groups=1, dilation=1,
    ) -> None:  # fmt: skip
        call = input, weight, bias, stride, padding, output_padding, groups, dilation
        layer = self._modules[-1] if self._modules else ""
        words = _words("" if dims == 2 else f"conv_transpose{dims}d", input, weight)
        numbers, self.device_name = device_numbers(input, self._device)
        if not asked:
            self.lines.append(Line(layer, "forward", words, reason=NOT_ASKED))
            return
        decision = routing.route(*call, asked[0], dims=dims)
        if decision is routing.NOT_CUDA:
            lowers = torch.is_autocast_enabled(routing.DEVICE_TYPE)
            decision = routing.op_call(*call, asked[0], numbers, lowers, dims)
        if isinstance(decision, routing.Reason):
            self.lines.append(Line(layer, "forward", words, reason=decision.text))
            return
        batched, weight, bias, directions = decision
        needs_grad_mask = grad_mask_of(input, *call[1:3])
        problem = planner.Problem.of_call(batched, weight, bias is not None, directions.arguments, numbers)
        rates = rates_for(numbers, self.device_name) if self._floors else None
        for direction, bit in ((choices.FORWARD, 0), (choices.GRAD_INPUT, 1), (choices.GRAD_WEIGHT, 2)):
            if bit == 0 or needs_grad_mask & bit:
                answer = _answer(directions, problem, direction, asked[0])
                has_floor = rates is not None and answer[2] is not None
                floor = _floor(problem, direction, rates) if has_floor else None  # type: ignore[arg-type]
                self.lines.append(Line(layer, _DIRECTIONS[direction], words, 1, *answer, floor))


def _answer(
    directions: NativeConv, problem: planner.Problem, direction: int, requested: str | None
) -> tuple[str, str, float | None, float | None, str]:
    """Returns the fields of a `Line` from `runs` to `reason`."""
    plan: dict[str, Any] = planner.plan(problem, direction) or {}
    candidates = plan.get("candidates") or [{}]
    if isinstance(directions, AutoDispatch):
        choice = directions.choice(direction)
        ours_us, torch_us = _known(choice.ours_us), _known(choice.torch_us)
        if choice.by_torch:
            return "torch", "", torch_us, ours_us, choice.why()
        kernel = candidates[choice.candidate].get("kernel", "")
        return "convt_ext", kernel, ours_us, torch_us, choice.why()
    of_kernel = candidates[directions.candidates[direction]]
    reason = reason_of(requested, scopes.now().requested)
    ours_us, torch_us = _known(of_kernel.get("estimate_us")), _known(plan.get("torch_us"))
    return "convt_ext", of_kernel.get("kernel", ""), ours_us, torch_us, reason


def _floor(problem: planner.Problem, direction: int, rates: Rates) -> float:
    """Returns the floor of one direction as the benchmark computes it, in the requested class."""
    batch, c_in, *depth, h_in, w_in = problem.input_size
    c_out = problem.weight_size[1] * problem.groups
    layer = Layer(
        "", batch, c_in, c_out, h_in, w_in, tuple(problem.weight_size[2:]), problem.stride, problem.padding,
        problem.output_padding, problem.groups, problem.dilation, problem.has_bias, *depth,
    )  # fmt: skip
    word = "f64" if problem.dtype is torch.float64 else CLASSES[problem.code]
    precision = "f16" if word == "half" else word  # bfloat16 has the rates of float16
    layout = "nhwc" if problem.channels_last else "nchw"
    name = "fwd" if direction == choices.FORWARD else f"grad_{_DIRECTIONS[direction]}"
    return floor_us(layer, name, precision, problem.dtype.itemsize, layout, rates)


def _known(us: float | None) -> float | None:
    return us if us and math.isfinite(us) else None


def _words(name: str, input: Any = None, weight: Any = None) -> str:
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        return name
    sizes = " * ".join("x".join(map(str, one.shape)) for one in (input, weight))
    return f"{name} {sizes} {str(input.dtype).removeprefix('torch.')}".lstrip()
