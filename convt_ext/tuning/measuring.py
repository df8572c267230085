"""`tune` measures the calls of a model ahead of time; `load`, `unload`, `replay` and `agree` select the measurements in
force. Public in `convt_ext.tuning`.

`tune` runs the benchmarks of benchmark.py in the first call of each shape, and writes a file that can be kept, merged
and committed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..convert import convert
from ..dispatch import planner, routing
from ..modules import ConvTransposeMixin
from . import benchmark, choices, files, restoring


def tune(
    target: nn.Module | Callable[..., Any],
    /,
    *inputs: Any,
    file: str | Path | None = None,
    backward: bool = True,
    **named: Any,
) -> files.Measured:
    """Measures every `convt_ext` call of `target(*inputs, **named)` and its gradients: the best convt_ext plans and
    PyTorch's operator.

    Each shape is benchmarked in its first call, with a few dozen launches on the GPU of its tensors. (With
    `torch.backends.cudnn.benchmark = True` alone, the benchmark runs after many calls.) The measurements apply in this
    process from now on.

    Gradients, buffers of the modules that ran, and PyTorch's random number generators are restored, even if `target`
    raises. Buffers of modules inside compiled functions and side effects of a function, such as an optimizer's step,
    are not restored.

    Args:
        target: a module (a copy of it runs, converted if it contains no layer of convt_ext) or a function.
        inputs, named: its arguments; tensors of the sizes that will be used. If `target` has keyword arguments named
            `file` or `backward`, wrap it in a function.
        file: the file to add the measurements to. It is checked to be writable before anything runs.
        backward: also measure gradients, of everything that requires them.

    Returns:
        The measurements by environment and call, as in the file.

    Raises:
        RuntimeError: no call was measured: no GPU is supported, or `target` makes no call with `backend="auto"` that
            a convt_ext kernel can run.
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
        if not any(isinstance(module, ConvTransposeMixin) for module in target.modules()):
            target = convert(target)
    with _measuring():
        restoring.run(target, inputs, named, backward)
        found = as_entries(choices.measured())
    if not found:
        raise RuntimeError(
            "convt_ext.tuning.tune measured nothing: it needs a CUDA GPU that the kernels support (python -m convt_ext "
            "info) and calls of convt_ext's functions or modules with backend='auto'"
        )
    files.add(found)
    routing.forget()
    if file is not None:
        files.add_to(file, found)
    return found


@contextmanager
def _measuring() -> Iterator[None]:
    """Makes the first call of each shape benchmark each direction, regardless of earlier measurements."""
    before, earlier = benchmark.force(True), choices.measured()
    routing.forget()
    try:
        with choices.begun_again():
            yield
        measured = choices.measured()
    except BaseException:
        measured = []
        raise
    finally:
        benchmark.force(before)
        choices.forget_measured()
        for one in (*earlier, *measured):
            choices.remember(*one)
        routing.forget()


def as_entries(measured: list[tuple[planner.Problem, int, choices.Choice]]) -> files.Measured:
    """Returns benchmarks of this process as entries of a file, without those of tensors that are not dense."""
    found: files.Measured = {}
    for problem, direction, choice in measured:
        key = files.key_of(problem, direction)
        if key is None or choice.source != choices.MEASURED:
            continue
        answer = planner.plan(problem, direction)
        assert answer is not None  # it was benchmarked
        plan = answer["candidates"][choice.candidate]
        knobs = {name: value for name, value in plan.items() if name not in planner.OF_EVERY_PLAN}
        entry = files.Entry(plan["kernel"], knobs, round(choice.ours_us, 2), round(choice.torch_us, 2))
        found.setdefault(_environment(problem), {})[key] = entry
    return found


def _environment(problem: planner.Problem) -> files.Environment:
    """Returns the environment of the first GPU with the numbers that the problem was planned for."""
    numbers = tuple(problem.device)
    for index in range(torch.cuda.device_count()):
        if planner.device_numbers(index) == numbers:
            return files.here(index)
    raise RuntimeError(f"convt_ext: no GPU of this process has the numbers {numbers}, for which a call was planned")


def load(file: str | Path) -> None:
    """Puts a tuning file in force in this process; replaces the file that CONVT_EXT_TUNING names or that was loaded.

    The package's own measurements apply to calls that the file does not contain. While `torch.backends.cudnn.benchmark`
    is on, benchmarks of this process have priority over both; directions that a file contains are not benchmarked.

    Args:
        file: a file that `tune` or `python -m convt_ext tune` has written.

    Raises:
        OSError: it does not exist or cannot be read.
        ValueError: it is not a tuning file.

    Example:
        >>> convt_ext.tuning.load("tuning.json")  # doctest: +SKIP
    """
    files.choose(str(file), files.read(file))
    routing.forget()


def unload() -> None:
    """Ignores the loaded file and the one that CONVT_EXT_TUNING names, in this process.

    Raises:
        Nothing.

    Example:
        >>> import convt_ext
        >>> convt_ext.tuning.unload()
    """
    files.choose("", {})
    routing.forget()


def merge(sources: Iterable[str | Path], file: str | Path) -> None:
    """Merges tuning files into one; for duplicate calls the later file wins.

    Args:
        sources: tuning files.
        file: the file to write.

    Raises:
        OSError: a file does not exist, or cannot be read or written.
        ValueError: a source is not a tuning file.

    Example:
        >>> convt_ext.tuning.merge(["h100.json", "h200.json"], "both.json")  # doctest: +SKIP
    """
    files.write(file, files.merged(files.read(path) for path in sources))


@contextmanager
def replay() -> Iterator[None]:
    """Disables benchmarks inside the `with` block, regardless of PyTorch's switches. Tuning files and the cost model
    select kernels, identically on every rank and in every run. CONVT_EXT_REPLAY=1 does that for a whole process.

    Raises:
        Nothing.

    Example:
        >>> import torch, convt_ext
        >>> with convt_ext.tuning.replay():
        ...     y = convt_ext.conv_transpose2d(torch.randn(1, 8, 5, 5), torch.randn(8, 4, 4, 4))
    """
    with benchmark.forced(False):
        yield


def agree(group: Any = None) -> None:
    """Makes all ranks of a process group use the choices of its first rank; nothing is measured afterwards.

    Every rank must call it, after `tune`, after `load`, or after the steps in which shapes were benchmarked. All GPUs
    must be of one model.

    Args:
        group: a group of `torch.distributed`; None is the default group.

    Raises:
        The errors of `torch.distributed.broadcast_object_list`, such as without a process group.

    Example:
        >>> convt_ext.tuning.agree()  # doctest: +SKIP
    """
    import torch.distributed as dist

    known = files.merged(
        [measured for _, measured in reversed(list(files.in_force()))] + [as_entries(choices.measured())]
    )
    box = [known]
    dist.broadcast_object_list(box, src=dist.get_global_rank(group, 0) if group is not None else 0, group=group)
    files.choose("rank 0", box[0])
    choices.forget_measured()
    benchmark.force(False)
    routing.forget()
