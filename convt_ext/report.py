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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from . import _torch, planner, routing, scopes
from .chosen import Chosen
from .directions import Eager, wanted_gradients
from .explain import device_numbers
from .request import reason_of
from .tuning import restoring, verdicts

_DIRECTIONS = {verdicts.FORWARD: "forward", verdicts.GRAD_INPUT: "input", verdicts.GRAD_WEIGHT: "weight"}

_OTHERS = {torch.conv_transpose1d: "conv_transpose1d", torch.conv_transpose3d: "conv_transpose3d"}

NOT_ASKED = "PyTorch's function was called; convt_ext.enable() or convt_ext.convert(model) replaces it"
OTHER_DIMENSIONS = "convt_ext supports only two-dimensional layers"


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
    """

    layer: str
    direction: str
    call: str
    number: int
    runs: str
    kernel: str
    us: float | None
    other_us: float | None
    reason: str


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
        rows = [("layer", "call", "direction", "runs", "us", "other us", "kernel")]
        for line in self.lines:
            layer = f"{line.layer} ({line.number} times)" if line.number > 1 else line.layer
            kernel = f"reason {reasons.index(line.reason) + 1}" if line.reason in reasons else line.kernel
            rows.append((layer, line.call, line.direction, line.runs, _time(line.us), _time(line.other_us), kernel))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([f"on {self.device}", *table, *(f"reason {i}: {text}" for i, text in enumerate(reasons, 1))])


def _time(us: float | None) -> str:
    return "-" if us is None else f"{us:.0f}"


def report(
    target: nn.Module | Callable[..., Any],
    /,
    *inputs: Any,
    device: int | str | torch.device | Sequence[int] | None = None,
    **named: Any,
) -> Report:
    """Reports which implementation runs each transposed convolution of `target(*inputs, **named)`, and why.

    The target runs once, with PyTorch's operator, without a backward pass and without compilation. Gradients are
    reported if the call would record them. Buffers, gradients and random number generators are restored.

    Args:
        target: a module or a function.
        inputs, named: its arguments.
        device: the GPU to report for, as in `convt_ext.explain`; None is the GPU of the tensors, else an H200.

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
    watcher = _Watcher(device)
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
    """Records each call of a transposed convolution."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self.device_name = ""
        self._device = device
        self._modules: list[str] = []
        self._words: list[str | None] = []

    @contextmanager
    def naming(self, names: dict[nn.Module, str]) -> Iterator[None]:
        """Inside, calls are assigned to the module that makes them."""

        def before(module: nn.Module, _: Any) -> None:
            self._modules.append(names.get(module, ""))

        def after(module: nn.Module, *_: Any) -> None:
            self._modules.pop()

        hooks = [
            register_module_forward_pre_hook(before),
            register_module_forward_hook(after, always_call=True),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def is_asked(self, word: str | None) -> None:
        """Records the keywords of a convt_ext call that is about to call PyTorch's function."""
        self._words.append(word)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked, self._words = self._words, []
        if function is _torch.conv_transpose2d:
            self._note(asked, *args, **kwargs)
        elif function in _OTHERS:
            self._add("forward", _words(_OTHERS[function], *args[:2]), _Answer(reason=OTHER_DIMENSIONS))
        return function(*args, **kwargs)

    def _add(self, direction: str, call: str, answer: _Answer) -> None:
        self.lines.append(Line(self._modules[-1] if self._modules else "", direction, call, 1, *answer))

    def _note(
        self, asked: list[str | None], input: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0,
        output_padding=0, groups=1, dilation=1,
    ) -> None:  # fmt: skip
        call = input, weight, bias, stride, padding, output_padding, groups, dilation
        words = _words("", input, weight)
        numbers, self.device_name = device_numbers(input, self._device)
        if not asked:
            self._add(_DIRECTIONS[0], words, _Answer(reason=NOT_ASKED))
            return
        decision = routing.route(*call, asked[0])
        if decision is routing.NOT_CUDA:
            decision = routing.op_call(*call, asked[0], numbers, torch.is_autocast_enabled(routing.DEVICE_TYPE))
        if isinstance(decision, routing.Reason):
            self._add(_DIRECTIONS[0], words, _Answer(reason=decision.text))
            return
        batched, weight, bias, directions = decision
        wanted = wanted_gradients(input, *call[1:3])
        problem = planner.Problem.of_call(batched, weight, bias is not None, directions.arguments, numbers)
        for direction, bit in ((verdicts.FORWARD, 0), (verdicts.GRAD_INPUT, 1), (verdicts.GRAD_WEIGHT, 2)):
            if bit == 0 or wanted & bit:
                self._add(_DIRECTIONS[direction], words, _answer(directions, problem, direction, asked[0]))


class _Answer(NamedTuple):
    """The fields of a `Line` from `runs` on."""

    runs: str = "torch"
    kernel: str = ""
    us: float | None = None
    other_us: float | None = None
    reason: str = ""


def _answer(directions: Eager, problem: planner.Problem, direction: int, word: str | None) -> _Answer:
    plan: dict[str, Any] = planner.plan(problem, direction) or {}
    candidates = plan.get("candidates") or [{}]
    if isinstance(directions, Chosen):
        verdict = directions.verdict(direction)
        ours_us, torch_us = _known(verdict.ours_us), _known(verdict.torch_us)
        if verdict.by_torch:
            return _Answer("torch", "", torch_us, ours_us, verdict.why())
        kernel = candidates[verdict.candidate].get("kernel", "")
        return _Answer("convt_ext", kernel, ours_us, torch_us, verdict.why())
    of_kernel = candidates[directions.candidates[direction]]
    reason = reason_of(word, scopes.now().word)
    times = _known(of_kernel.get("estimate_us")), _known(plan.get("torch_us"))
    return _Answer("convt_ext", of_kernel.get("kernel", ""), *times, reason)


def _known(us: float | None) -> float | None:
    return us if us and math.isfinite(us) else None


def _words(name: str, input: Any = None, weight: Any = None) -> str:
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        return name
    sizes = " * ".join("x".join(map(str, one.shape)) for one in (input, weight))
    return f"{name} {sizes} {str(input.dtype).removeprefix('torch.')}".lstrip()
