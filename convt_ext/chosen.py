"""The three directions where nobody asked for a precision: ours or PyTorch's, whichever is faster.

`Chosen` follows the verdicts of tuning/ and, where PyTorch's switches ask for measuring, has the first call of a
direction raced. routing.py makes it, autograd.py runs it. Everything here lies below autograd: nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import ops, planner
from . import precision as precisions
from .directions import Eager, Gradients, torch_forward, torch_gradients, wanted_gradients
from .epilogue import Step, apply_steps
from .tuning import race, verdicts
from .tuning.verdicts import FORWARD, GRAD_INPUT, GRAD_WEIGHT, Verdict

_below_autograd = torch._C._AutoDispatchBelowAutograd


class Chosen(Eager):
    """As `Eager`, where nobody asked for a precision: PyTorch computes what it is faster at, or what ours cannot.

    Each direction is judged by itself, once, when it is first asked for.

    Args:
        races: directions of which neither a race nor a tuning file has said anything are raced when they first run.
            Without it what races have found counts for nothing: whoever asks for the same results gets them.
    """

    __slots__ = ("_serves", "_settled", "_verdicts", "problem", "races")

    def __init__(
        self,
        arguments: tuple[Any, ...],
        problem: planner.Problem,
        races: bool,
        weight_channels_last: bool = False,
        is_light: bool = False,
    ) -> None:
        super().__init__(arguments, weight_channels_last=weight_channels_last, by_name=False, is_light=is_light)
        self.problem = problem
        self.races = races
        self._verdicts: list[Verdict | None] = [None, None, None]
        self._serves: list[bool | None] = [None] * 8  # by what is wanted
        self._settled: list[bool] = [False] * 8  # likewise: whether `call` says who computes it

    def verdict(self, direction: int) -> Verdict:
        """Who computes that direction; before a race of it, whom the estimates favour."""
        found = self._verdicts[direction]
        if found is not None:
            return found
        if not self.races:
            found = verdicts.of_files(self.problem, direction)
            return self._settle(direction, found or verdicts.estimated(self.problem, direction))
        found = verdicts.find(self.problem, direction)
        return self._settle(direction, found) if found else verdicts.estimated(self.problem, direction)

    def left_to_torch(self, direction: int) -> bool:
        """Whether PyTorch's operator computes that direction."""
        return self.verdict(direction).by_torch

    def is_torchs(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        return self._serves[wanted_gradients(input, weight, bias)] is False

    def serves(self, input: Tensor, weight: Tensor, bias: Tensor | None, wanted: int) -> bool:
        found = self._serves[wanted]
        if found is False or input.dtype is not self.problem.dtype or weight.dtype is not self.problem.dtype:
            return False  # autocast has been left to PyTorch
        if found:
            return True
        if self.races:
            self._race_forward(input, weight, bias)
        return self._is_part_ours(wanted)

    def _is_part_ours(self, wanted: int) -> bool:
        """Whether ours compute one of the directions at least; before a race of gradients they do, as they race them.

        For a mixture the host takes no longer than for PyTorch's own call, whose backward is the longest
        (docs/measuring.md).
        """
        gradients = _gradients_of(wanted)
        if self.races and not self._are_settled(gradients):
            return True
        by_torch = {self.left_to_torch(one) for one in (FORWARD, *gradients)}  # asked for each, which settles it
        answer = False in by_torch
        if self._are_settled((FORWARD, *gradients)):
            self._serves[wanted] = answer
        return answer

    def is_recorded_by_torch(self, wanted: int) -> bool:
        return self._settled[wanted] or (self.is_light and self._is_settled_now(wanted))

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self._is_left_to_torch_unsettled(input, weight, bias):
            with _below_autograd():
                return torch_forward(input, weight, bias, self.arguments)
        return super().forward(input, weight, bias)

    def forward_then(self, input: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[Step]) -> Tensor:
        if self._is_left_to_torch_unsettled(input, weight, bias):
            with _below_autograd():
                return apply_steps(torch_forward(input, weight, bias, self.arguments), steps)
        return super().forward_then(input, weight, bias, steps)

    def _is_left_to_torch_unsettled(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        """Whether the forward pass is PyTorch's and `call` does not say so, as this moment does not settle it."""
        if self._verdicts[FORWARD] is None and self.races:
            self._race_forward(input, weight, bias)
        return self._verdicts[FORWARD] is None and self.left_to_torch(FORWARD) and self._verdicts[FORWARD] is None

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        directions = [one for one in (GRAD_INPUT, GRAD_WEIGHT) if wanted[one - 1]]
        if self._are_settled(directions):
            return super().gradients(grad_output, input, weight, wanted)
        if self.races and self._torch_keeps_the_class():
            self._race_gradients(grad_output, input, weight, directions)
        by_torch = [one in directions and self.left_to_torch(one) for one in (GRAD_INPUT, GRAD_WEIGHT)]
        if self._are_settled(directions) or not any(by_torch):
            return super().gradients(grad_output, input, weight, wanted)
        ours = super().gradients(grad_output, input, weight, [wanted[0] and not by_torch[0],
                                                              wanted[1] and not by_torch[1], wanted[2]])  # fmt: skip
        # Both in one call, which prepares grad_output and input once.
        with _below_autograd():
            theirs = torch_gradients(grad_output, input, weight, self.arguments, [*by_torch, False])
        return theirs[0] if by_torch[0] else ours[0], theirs[1] if by_torch[1] else ours[1], ours[2]

    def _race_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        def ours(number: int) -> Tensor:
            return ops.run_forward(input, weight, bias, self.call_of((number, 0, 0), 0))

        def theirs() -> Tensor:
            with _below_autograd():
                return torch_forward(input, weight, bias, self.arguments)

        if self._verdicts[FORWARD] is None:
            self._race(FORWARD, ours, theirs, input)

    def _race_gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, directions: Iterable[int]) -> None:
        """Those of them that are not yet settled."""
        for direction in directions:
            if self._verdicts[direction] is not None:
                continue

            def ours(number: int, direction: int = direction) -> Any:
                call = self.call_of([number if one == direction else 0 for one in range(3)], 0)
                return ops.run_gradients(grad_output, input, weight, call, direction)

            def theirs(direction: int = direction) -> Any:
                mask = [direction == GRAD_INPUT, direction == GRAD_WEIGHT, False]
                with _below_autograd():
                    return torch_gradients(grad_output, input, weight, self.arguments, mask)

            self._race(direction, ours, theirs, grad_output)

    def _race(self, direction: int, ours: Any, theirs: Any, operand: Tensor) -> None:
        """Settles a direction where this moment allows it: by what is already known, else by a race."""
        found = verdicts.find(self.problem, direction)
        if found is None:
            if not race.is_possible():
                return
            found = race.run(self.problem, direction, ours, theirs, operand.device)
            if found is None:
                found = verdicts.estimated(self.problem, direction)
            verdicts.remember(self.problem, direction, found)
        self._settle(direction, found)

    def _settle(self, direction: int, verdict: Verdict) -> Verdict:
        self._verdicts[direction] = verdict
        self.candidates = tuple(0 if one is None else one.candidate for one in self._verdicts)
        by_torch = sum(1 << i for i, one in enumerate(self._verdicts) if one is not None and one.by_torch)
        self.call = self.call_of(self.candidates, by_torch)
        self._serves = [None] * 8
        self._settled = [False] * 8
        return verdict

    def _torch_keeps_the_class(self) -> bool:
        """Whether PyTorch would compute in the class of the forward pass: it reads its switches when it runs."""
        now = precisions.class_by_switches(self.problem.dtype, planner.capability(self.problem.device))
        return precisions.CODES.get(now) == self.arguments[5]

    def _are_settled(self, directions: Iterable[int]) -> bool:
        return all(self._verdicts[one] is not None for one in directions)

    def _is_settled_now(self, wanted: int) -> bool:
        self._settled[wanted] = self._are_settled((FORWARD, *_gradients_of(wanted)))
        return self._settled[wanted]


def _gradients_of(wanted: int) -> list[int]:
    """The directions among what a backward computes (`directions.wanted_gradients`)."""
    return [one for one, bit in ((GRAD_INPUT, 1), (GRAD_WEIGHT, 2)) if wanted & bit]
