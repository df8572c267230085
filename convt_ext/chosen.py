"""The three directions where nobody asked for a precision: ours or PyTorch's, whichever is faster.

`Chosen` follows the verdicts of tuning/ and, where PyTorch's switches ask for measuring, has the first call of a
direction raced. routing.py makes it, autograd.py runs it. Everything here lies below autograd: nothing is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import ops, planner
from . import precision as precisions
from .directions import Eager, Gradients, torch_forward, torch_gradients, wanted_gradients
from .tuning import race, verdicts
from .tuning.verdicts import FORWARD, GRAD_INPUT, GRAD_WEIGHT, Verdict

_below_autograd = torch._C._AutoDispatchBelowAutograd

# What the host takes for the two gradients of one backward, in microseconds: ours, PyTorch's, one of each; and for a
# recorded call with its backward in a program, whose caches are cold: PyTorch's own; ours with gradients of ours alone,
# of PyTorch's alone, of both; ours with PyTorch's forward pass (docs/measuring.md).
_OURS_HOST_US, _TORCH_HOST_US, _MIXED_HOST_US = 100, 105, 125
_STEP_TORCHS_US, _STEP_OURS_US, _STEP_FORWARD_US, _STEP_MIXED_US, _STEP_GRADIENTS_US = 150, 190, 240, 280, 300


class Chosen(Eager):
    """As `Eager`, where nobody asked for a precision: PyTorch computes what it is faster at, or what ours cannot.

    Each direction is judged by itself, once, when it is first asked for; the two gradients of one backward together,
    because of small ones the host is what takes long, and two calls cost it more than one. Where memory is too short
    for ours, PyTorch's operator, which has algorithms of its own for that, has the last word.

    Args:
        races: directions of which neither a race nor a tuning file has said anything are raced when they first run.
            Without it what races have found counts for nothing: whoever asks for the same results gets them.
    """

    __slots__ = ("_both", "_is_ours", "_serves", "_verdicts", "problem", "races")
    by_name = False

    def __init__(self, arguments: tuple[Any, ...], problem: planner.Problem, races: bool) -> None:
        super().__init__(arguments)
        self.problem = problem
        self.races = races
        self._verdicts: list[Verdict | None] = [None, None, None]
        self._serves: list[bool | None] = [None] * 8  # by what is wanted
        self._is_ours = [False] * 8  # backwards that are known to be ours alone
        self._both: tuple[bool, bool] | None = None

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
        return self.verdict(direction).by_torch

    def both_left_to_torch(self) -> tuple[bool, bool]:
        """Whether PyTorch's operator computes the gradient of the input, and of the weight, where both are wanted."""
        if self._both is not None:
            return self._both
        alone = self.left_to_torch(GRAD_INPUT), self.left_to_torch(GRAD_WEIGHT)
        both = self._cheapest(alone) if alone[0] != alone[1] else alone
        if None not in self._verdicts[GRAD_INPUT:]:
            self._both = both
        return both

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
        return self.is_worth_it(wanted)

    def is_worth_it(self, wanted: int) -> bool:
        """As `serves`: by what takes longer, GPU or host. Before a race of gradients it is, as ours alone race them."""
        gradients = [one for one, bit in ((GRAD_INPUT, 1), (GRAD_WEIGHT, 2)) if wanted & bit]
        if self.races and any(self._verdicts[one] is None for one in gradients):
            return True
        by_torch = {one: self.left_to_torch(one) for one in (FORWARD, *gradients)}
        if len(gradients) == 2:
            by_torch[GRAD_INPUT], by_torch[GRAD_WEIGHT] = self.both_left_to_torch()
        if not wanted or all(by_torch.values()):
            answer = not by_torch[FORWARD]
        else:
            answer = self._step_us(by_torch) < self._step_us(dict.fromkeys(by_torch, True))
        if all(self._verdicts[one] is not None for one in by_torch):
            self._serves[wanted] = answer
        return answer

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.races:
            self._race_forward(input, weight, bias)
        if not self.verdict(FORWARD).by_torch:
            try:
                return ops.run_forward(input, weight, bias, self.numbers)
            except torch.OutOfMemoryError:
                pass
        with _below_autograd():
            return torch_forward(input, weight, bias, self.arguments)

    def gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        place = wanted[0] + 2 * wanted[1] + 4 * wanted[2]
        if self._is_ours[place]:
            return self._ours(grad_output, input, weight, wanted)
        by_torch = [False, False, False]
        if self._torch_keeps_the_class():
            if self.races:
                self._race_gradients(grad_output, input, weight, wanted)
            if wanted[0] and wanted[1]:
                by_torch = [*self.both_left_to_torch(), False]
            else:
                by_torch = [
                    wanted[0] and self.left_to_torch(GRAD_INPUT), wanted[1] and self.left_to_torch(GRAD_WEIGHT), False
                ]  # fmt: skip
            if not any(by_torch):
                settled = (self._verdicts[one] is not None for one in (GRAD_INPUT, GRAD_WEIGHT) if wanted[one - 1])
                self._is_ours[place] = all(settled)
        ours: Gradients = (None, None, None)
        if by_torch != list(wanted[:3]):
            left = [wanted[i] and not by_torch[i] for i in range(3)]
            ours = self._ours(grad_output, input, weight, left)
        if not (by_torch[0] or by_torch[1]):
            return ours
        # Both in one call, which prepares grad_output and input once.
        with _below_autograd():
            theirs = torch_gradients(grad_output, input, weight, self.arguments, by_torch)
        return theirs[0] if by_torch[0] else ours[0], theirs[1] if by_torch[1] else ours[1], ours[2]

    def _ours(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> Gradients:
        """By our op; where memory is short one by one: each alone needs less, and PyTorch has what needs little."""
        try:
            return super().gradients(grad_output, input, weight, wanted)
        except torch.OutOfMemoryError:
            pass
        found: list[Tensor | None] = [None, None, None]
        for one in (0, 1, 2):
            mask = [one == i and wanted[i] for i in range(3)]
            if not any(mask):
                continue
            try:
                found[one] = super().gradients(grad_output, input, weight, mask)[one]
            except torch.OutOfMemoryError:
                if one == 2 or not self._torch_keeps_the_class():
                    raise
                with _below_autograd():
                    found[one] = torch_gradients(grad_output, input, weight, self.arguments, mask)[one]
        return found[0], found[1], found[2]

    def _race_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        def ours(number: int) -> Tensor:
            return ops.run_forward(input, weight, bias, self.numbers_of((number, 0, 0)))

        def theirs() -> Tensor:
            with _below_autograd():
                return torch_forward(input, weight, bias, self.arguments)

        if self._verdicts[FORWARD] is None:
            self._race(FORWARD, ours, theirs, input)

    def _race_gradients(self, grad_output: Tensor, input: Tensor, weight: Tensor, wanted: Sequence[bool]) -> None:
        """Of input and weight, those that are wanted and not yet settled."""
        for direction, mask in ((GRAD_INPUT, [True, False, False]), (GRAD_WEIGHT, [False, True, False])):
            if self._verdicts[direction] is not None or not wanted[mask.index(True)]:
                continue

            def ours(number: int, direction: int = direction, mask: list[bool] = mask) -> Any:
                numbers = self.numbers_of([number if one == direction else 0 for one in range(3)])
                return ops.run_gradients(grad_output, input, weight, numbers, self.bits(input, mask))

            def theirs(mask: list[bool] = mask) -> Any:
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
        self.numbers = self.numbers_of([0 if one is None else one.candidate for one in self._verdicts])
        self._serves = [None] * 8
        self._is_ours = [False] * 8
        self._both = None
        return verdict

    def _step_us(self, by_torch: dict[int, bool]) -> float:
        """How long a recorded call and its backward keep the GPU, or the host where that is longer."""
        found = {one: self.verdict(one) for one in by_torch}
        if any(found[one].torch_us == 0 for one, left in by_torch.items() if left):
            return math.inf  # nothing is known of PyTorch's time: ours serve
        gpu_us = sum(found[one].torch_us if left else found[one].ours_us for one, left in by_torch.items())
        gradients = [left for one, left in by_torch.items() if one != FORWARD]
        if all(by_torch.values()):
            host_us = _STEP_TORCHS_US
        elif by_torch[FORWARD]:
            host_us = _STEP_GRADIENTS_US
        elif any(gradients):
            host_us = _STEP_FORWARD_US if all(gradients) else _STEP_MIXED_US
        else:
            host_us = _STEP_OURS_US
        return max(gpu_us, host_us)

    def _cheapest(self, alone: tuple[bool, bool]) -> tuple[bool, bool]:
        """Of both by one of the two and each by the one that is faster at it: what ends first, on GPU and host."""
        both = [self.verdict(GRAD_INPUT), self.verdict(GRAD_WEIGHT)]
        if any(verdict.torch_us == 0 for verdict in both):
            return alone
        costs = {
            (False, False): max(sum(verdict.ours_us for verdict in both), _OURS_HOST_US),
            (True, True): max(sum(verdict.torch_us for verdict in both), _TORCH_HOST_US),
            alone: max(sum(min(verdict.ours_us, verdict.torch_us) for verdict in both), _MIXED_HOST_US),
        }
        return min(costs, key=costs.__getitem__)

    def _torch_keeps_the_class(self) -> bool:
        """Whether PyTorch would compute in the class of the forward pass: it reads its switches when it runs."""
        now = precisions.class_by_switches(self.problem.dtype, planner.capability(self.problem.device))
        return precisions.CODES.get(now) == self.arguments[5]
