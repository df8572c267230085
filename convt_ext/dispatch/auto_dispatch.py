"""The three directions of a call with backend="auto", each by the faster of convt_ext and PyTorch.

The implementation of a direction is chosen on first use, by a tuning file, else by the cost model. With
`torch.backends.cudnn.benchmark = True` a benchmark chooses again, after as many calls as make the benchmark worth its
time (tuning/benchmark.py): calls are counted, not seconds, so that runs and ranks decide alike. Made and cached by
routing.py. Runs below autograd, as directions.py does.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..environment import _torch
from ..epilogue.steps import Step
from ..tuning import benchmark, choices
from ..tuning.choices import FORWARD, GRAD_INPUT, GRAD_WEIGHT, Choice
from . import ops, planner
from . import precision as precisions
from .directions import Gradients, NativeConv, grad_mask_of, torch_forward, torch_gradients

_LOG = logging.getLogger("convt_ext")
_NAMES = ("forward", "gradient of the input", "gradient of the weight")

_below_autograd = _torch.AutoDispatchBelowAutograd


class AutoDispatch(NativeConv):
    """`NativeConv`, except that PyTorch's operator computes directions in which it is faster or no kernel fits.

    Args:
        benchmarks: benchmark directions that no tuning file contains, after some calls. Without it, results of earlier
            benchmarks are not used either, so that a program that requests reproducible results gets them.
    """

    __slots__ = ("_backwards", "_calls", "_choices", "_next", "_serves", "_waiting", "benchmarks", "problem")
    _by_name = False

    def __init__(
        self,
        arguments: tuple[Any, ...],
        problem: planner.Problem,
        benchmarks: bool,
        weight_channels_last: bool = False,
        fits_light_path: bool = False,
    ) -> None:
        super().__init__(
            arguments, weight_channels_last=weight_channels_last, by_name=self._by_name, fits_light_path=fits_light_path
        )
        self.problem = problem
        self.benchmarks = benchmarks
        self._choices: list[Choice | None] = [None, None, None]
        self._serves: list[bool | None] = [None] * 8  # by needs_grad_mask: whether convt_ext computes any direction
        self._waiting: dict[int, int] = {}  # direction to benchmark -> after how many calls
        self._calls = self._backwards = 0  # counted while there are any
        self._next = [math.inf, math.inf]  # numbers of calls and of backwards at which the next benchmark is due

    def choice(self, direction: int) -> Choice:
        """Returns the choice for that direction; makes it on first use."""
        found = self._choices[direction]
        if found is not None:
            return found
        found = (choices.find if self.benchmarks else choices.of_files)(self.problem, direction)
        if found is None:
            found = choices.estimated(self.problem, direction)
            self._log(direction, found)
            calls = benchmark.calls_before(found) if self.benchmarks else None
            if calls is not None:
                self._waiting[direction] = calls + (self._calls if direction == FORWARD else self._backwards)
                self._set_next()
        return self._put(direction, found)

    def left_to_torch(self, direction: int) -> bool:
        """Returns whether PyTorch's operator computes that direction."""
        return self.choice(direction).by_torch

    def is_aten_call(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        return self._serves[grad_mask_of(input, weight, bias)] is False

    def serves(self, input: Tensor, weight: Tensor, bias: Tensor | None, needs_grad_mask: int) -> bool:
        found = self._serves[needs_grad_mask]
        if found is None or self._waiting:
            self.count(True, needs_grad_mask & 3 != 0)
            if found is None:
                found = self._runs_any_direction(needs_grad_mask)
        if input.dtype is not self.problem.dtype or weight.dtype is not self.problem.dtype:
            return False  # PyTorch applies autocast
        if self._calls < self._next[0] and self._backwards < self._next[1]:
            return found
        if self._is_due(FORWARD):
            self._benchmark(FORWARD, input, weight, bias, None)
        return self._runs_any_direction(needs_grad_mask) or self._is_gradient_due(needs_grad_mask)

    def count(self, calls: bool, backward: bool) -> None:
        self._calls += calls
        self._backwards += backward

    def _runs_any_direction(self, needs_grad_mask: int) -> bool:
        """Returns whether convt_ext computes at least one of the directions.

        A mixture costs the host no more than PyTorch's own call, because PyTorch's backward is the slowest on the host.
        """
        gradients = (one for one, bit in ((GRAD_INPUT, 1), (GRAD_WEIGHT, 2)) if needs_grad_mask & bit)
        directions = (FORWARD, *gradients)
        planner.plan_ahead(self.problem, [one for one in directions if self._choices[one] is None])
        by_torch = [self.left_to_torch(one) for one in directions]  # makes the choice for each
        self._serves[needs_grad_mask] = not all(by_torch)
        return not all(by_torch)

    def is_recorded_by_torch(self, needs_grad_mask: int) -> bool:
        # Only a backward recorded by convt_ext can benchmark a gradient.
        return self.fits_light_path and not (
            self._backwards >= self._next[1] and self._is_gradient_due(needs_grad_mask)
        )

    def _is_due(self, direction: int) -> bool:
        return self._waiting.get(direction, math.inf) <= (self._calls if direction == FORWARD else self._backwards)

    def _is_gradient_due(self, needs_grad_mask: int) -> bool:
        return (needs_grad_mask & 1 and self._is_due(GRAD_INPUT)) or (
            needs_grad_mask & 2 != 0 and self._is_due(GRAD_WEIGHT)
        )

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        self._choose_forward(input, weight, bias)
        return super().forward(input, weight, bias)

    def forward_then(self, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[Step]) -> Tensor:
        self._choose_forward(input, weight, bias)
        return super().forward_then(input, weight, bias, steps)

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, needs_grad: Sequence[bool]) -> Gradients:
        for direction in (GRAD_INPUT, GRAD_WEIGHT):
            if needs_grad[direction - 1]:
                self.choice(direction)
                if self._is_due(direction) and self._torch_keeps_the_class():
                    self._benchmark(direction, input, weight, None, grad_output)
        return super().gradients(grad_output, input, weight, needs_grad)

    def choose_now(
        self, direction: int, input: Tensor, weight: Tensor, bias: Tensor | None, grad_output: Tensor | None
    ) -> None:
        """Makes the final choice of a direction before its first call, by a benchmark unless its result is known. The
        operands have the call's sizes and strides; the forward pass needs no grad_output."""
        self.choice(direction)
        if direction in self._waiting:
            self._benchmark(direction, input, weight, bias, grad_output)

    def _choose_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        if self._choices[FORWARD] is None:
            self.choice(FORWARD)
        if self._is_due(FORWARD):
            self._benchmark(FORWARD, input, weight, bias, None)

    def _benchmark(
        self, direction: int, input: Tensor, weight: Tensor, bias: Tensor | None, grad_output: Tensor | None
    ) -> None:
        """Makes the final choice of a direction if possible now: by a known result, else by a benchmark."""

        def ours(number: int) -> Any:
            call = self.call_of([number if one == direction else 0 for one in range(3)], 0)
            if direction == FORWARD:
                return ops.run_forward(input, weight, bias, call)
            return ops.run_gradients(grad_output, input, weight, call, direction)

        def theirs() -> Any:
            with _below_autograd():
                if direction == FORWARD:
                    return torch_forward(input, weight, bias, self.arguments)
                mask = [direction == GRAD_INPUT, direction == GRAD_WEIGHT, False]
                return torch_gradients(grad_output, input, weight, self.arguments, mask)

        found = choices.find(self.problem, direction)
        if found is None:
            if not benchmark.is_possible():
                return
            found = benchmark.run(self.problem, direction, ours, theirs, input.device)
            if found is None:
                found = choices.estimated(self.problem, direction)
            choices.remember(self.problem, direction, found)
            self._log(direction, found)
        self._waiting.pop(direction, None)
        self._set_next()
        self._put(direction, found)

    def _log(self, direction: int, choice: Choice) -> None:
        if _LOG.isEnabledFor(logging.DEBUG):
            sizes = (*self.problem.input_size, "*", *self.problem.weight_size)
            _LOG.debug(
                "%s of %s: %s, %s", _NAMES[direction], "x".join(map(str, sizes)).replace("x*x", " * "),
                "PyTorch's operator" if choice.by_torch else "convt_ext", choice.why(),
            )  # fmt: skip

    def _set_next(self) -> None:
        waiting = dict(self._waiting)  # another thread may end a benchmark meanwhile
        of_calls = waiting.pop(FORWARD, math.inf)
        self._next = [of_calls, min(waiting.values(), default=math.inf)]

    def _put(self, direction: int, choice: Choice) -> Choice:
        self._choices[direction] = choice
        self.candidates = tuple(0 if one is None else one.candidate for one in self._choices)
        by_torch = sum(1 << i for i, one in enumerate(self._choices) if one is not None and one.by_torch)
        self.call = self.call_of(self.candidates, by_torch)
        self._serves = [None] * 8
        return choice

    def _torch_keeps_the_class(self) -> bool:
        """Returns whether PyTorch would use the class of the forward pass: it reads its switches when it runs."""
        now = precisions.class_by_switches(self.problem.dtype, planner.capability(self.problem.device))
        return precisions.CODES.get(now) == self.arguments[5]


class AutoDispatchInClass(AutoDispatch):
    """`AutoDispatch` for an explicit precision, which PyTorch's switches select too.

    The switches may change before the backward runs, and PyTorch's own node would follow them. So every call that
    records gradients is recorded by convt_ext, and its kernels compute the gradients if the switches have changed.
    """

    __slots__ = ("_native",)
    _by_name = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._native = NativeConv(self.arguments, weight_channels_last=self.weight_channels_last)

    def is_aten_call(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        return not grad_mask_of(input, weight, bias) and super().is_aten_call(input, weight, bias)

    def serves(self, input: Tensor, weight: Tensor, bias: Tensor | None, needs_grad_mask: int) -> bool:
        return super().serves(input, weight, bias, needs_grad_mask) or needs_grad_mask != 0

    def is_recorded_by_torch(self, needs_grad_mask: int) -> bool:
        return False

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self._torch_keeps_the_class():
            return super().forward(input, weight, bias)
        return self._native.forward(input, weight, bias)  # a derivative of a gradient

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, needs_grad: Sequence[bool]) -> Gradients:
        if self._torch_keeps_the_class():
            return super().gradients(grad_output, input, weight, needs_grad)
        return self._native.gradients(grad_output, input, weight, needs_grad)
