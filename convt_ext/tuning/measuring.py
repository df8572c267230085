"""`tune` measures the calls of a model ahead of time; `load`, `unload`, `replay` and `agree` say which measurements
count. Users find them in `convt_ext.tuning`.

It runs the benchmarks of race.py in the first call of each shape, and writes a file that can be kept, merged and
committed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import planner, routing
from ..convert import convert
from ..modules import ConvTranspose2d
from . import files, race, restoring, verdicts


def tune(
    target: nn.Module | Callable[..., Any],
    /,
    *inputs: Any,
    file: str | Path | None = None,
    backward: bool = True,
    **named: Any,
) -> files.Measured:
    """Measures every `convt_ext` call that `target(*inputs, **named)` makes, and its gradients: our best plans and
    PyTorch's operator.

    Each shape is benchmarked in its first call, a few dozen launches on the GPU of its tensors. With
    `torch.backends.cudnn.benchmark = True` alone that waits for many calls. The measurements count in this process from
    now on.

    Gradients, buffers of the modules that ran, and the states of PyTorch's random number generators are restored, also
    where `target` raises. Buffers of modules inside of compiled functions are not, nor is what a function does by
    itself, such as an optimizer's step.

    Args:
        target: a module, of which a copy runs, converted where it has no `convt_ext.ConvTranspose2d`; or a function,
            such as one that makes explicit calls.
        inputs, named: what it is called with; tensors of the sizes that will be used. A target whose own keyword
            arguments are named `file` or `backward` is wrapped in a function.
        file: where the measurements go, beside those that it already has. Whether it can be written is checked before
            anything runs.
        backward: measure gradients too, of everything that requires them.

    Returns:
        The measurements, by environment and call, as the file holds them.

    Raises:
        RuntimeError: no call was measured: there is no GPU that our kernels serve, or `target` makes no call that may
            be served by them without a `precision=`.
        ValueError, OSError: `file` cannot be read or written.

    Example:
        >>> noise = torch.randn(64, 100, 1, 1, device="cuda")  # doctest: +SKIP
        >>> convt_ext.tuning.tune(generator, noise, file="tuning.json")  # doctest: +SKIP
        >>> convt_ext.tuning.tune(decoder, x, skip=features, file="tuning.json")  # doctest: +SKIP
    """
    if file is not None:
        files.check(file)
    if isinstance(target, nn.Module):
        target = copy.deepcopy(target)
        if not any(isinstance(module, ConvTranspose2d) for module in target.modules()):
            target = convert(target)
    with _measuring():
        restoring.run(target, inputs, named, backward)
        found = as_entries(verdicts.measured())
    if not found:
        raise RuntimeError(
            "convt_ext.tuning.tune measured nothing: it needs a CUDA GPU that the kernels serve (python -m convt_ext "
            "info) and calls of convt_ext.conv_transpose2d or its modules without precision="
        )
    files.add(found)
    routing.forget()
    if file is not None:
        files.add_to(file, found)
    return found


@contextmanager
def _measuring() -> Iterator[None]:
    """Inside, each direction of each new shape is benchmarked in its first call, whatever is known of it."""
    before, earlier = race.force(True), verdicts.measured()
    routing.forget()
    try:
        with verdicts.begun_again():
            yield
        measured = verdicts.measured()
    except BaseException:
        measured = []
        raise
    finally:
        race.force(before)
        verdicts.forget_measured()
        for one in (*earlier, *measured):
            verdicts.remember(*one)
        routing.forget()


def as_entries(measured: list[tuple[planner.Problem, int, verdicts.Verdict]]) -> files.Measured:
    """Benchmarks of this process as a file holds them, without those of tensors that are not dense."""
    found: files.Measured = {}
    for problem, direction, verdict in measured:
        key = files.key_of(problem, direction)
        if key is None or verdict.source != verdicts.MEASURED:
            continue
        answer = planner.plan(problem, direction)
        assert answer is not None  # it was benchmarked
        plan = answer["candidates"][verdict.candidate]
        knobs = {name: value for name, value in plan.items() if name not in planner.OF_EVERY_PLAN}
        entry = files.Entry(plan["kernel"], knobs, round(verdict.ours_us, 2), round(verdict.torch_us, 2))
        found.setdefault(_environment(problem), {})[key] = entry
    return found


def _environment(problem: planner.Problem) -> files.Environment:
    """Of the first GPU with the numbers that the problem was planned for."""
    numbers = tuple(problem.device)
    for index in range(torch.cuda.device_count()):
        if planner.device_numbers(index) == numbers:
            return files.here(index)
    raise RuntimeError(f"convt_ext: no GPU of this process has the numbers {numbers}, for which a call was planned")


def load(file: str | Path) -> None:
    """Has this process follow a tuning file, in the place of the one that CONVT_EXT_TUNING names or that was loaded
    before.

    What the package has measured itself counts where the file says nothing. While `torch.backends.cudnn.benchmark` is
    on, benchmarks of this process count before both; directions that a file covers are not benchmarked.

    Args:
        file: what `tune` or `python -m convt_ext tune` has written.

    Raises:
        OSError: it is not there, or may not be read.
        ValueError: it is no tuning file.

    Example:
        >>> convt_ext.tuning.load("tuning.json")  # doctest: +SKIP
    """
    files.choose(str(file), files.read(file))
    routing.forget()


def unload() -> None:
    """Has this process follow neither a loaded file nor the one that CONVT_EXT_TUNING names.

    Raises:
        Nothing.

    Example:
        >>> import convt_ext
        >>> convt_ext.tuning.unload()
    """
    files.choose("", {})
    routing.forget()


def merge(sources: Iterable[str | Path], file: str | Path) -> None:
    """Writes one tuning file of several; of two times of one call that of the later file counts.

    Args:
        sources: tuning files.
        file: where the result goes.

    Raises:
        OSError: a file is not there, or may not be read or written.
        ValueError: a source is no tuning file.

    Example:
        >>> convt_ext.tuning.merge(["h100.json", "h200.json"], "both.json")  # doctest: +SKIP
    """
    files.write(file, files.merged(files.read(path) for path in sources))


@contextmanager
def replay() -> Iterator[None]:
    """Inside, nothing is measured, whatever PyTorch's switches say: tuning files and the cost model decide, alike on
    every rank and in every run. CONVT_EXT_REPLAY=1 does that for a whole process.

    Raises:
        Nothing of its own.

    Example:
        >>> import torch, convt_ext
        >>> with convt_ext.tuning.replay():
        ...     y = convt_ext.conv_transpose2d(torch.randn(1, 8, 5, 5), torch.randn(8, 4, 4, 4))
    """
    before = race.force(False)
    try:
        yield
    finally:
        race.force(before)


def agree(group: Any = None) -> None:
    """Has all ranks of a process group choose as its first one does, now and later: nothing is measured any more.

    Every rank calls it, after `tune`, after `load`, or after the steps in which shapes were benchmarked. GPUs
    must be of one model.

    Args:
        group: of `torch.distributed`; None is the group of all.

    Raises:
        What `torch.distributed.broadcast_object_list` raises, such as without a process group.

    Example:
        >>> convt_ext.tuning.agree()  # doctest: +SKIP
    """
    import torch.distributed as dist

    known = files.merged(
        [measured for _, measured in reversed(list(files.in_force()))] + [as_entries(verdicts.measured())]
    )
    box = [known]
    dist.broadcast_object_list(box, src=dist.get_global_rank(group, 0) if group is not None else 0, group=group)
    files.choose("rank 0", box[0])
    verdicts.forget_measured()
    race.force(False)
    routing.forget()
