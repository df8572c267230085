"""Tensors of more than 2^31 elements in every kernel family: tests/large_problems.py, each kernel forced.

A result is compared everywhere with calls of a part of it, small enough for 32 bits: bit for bit in the exact classes,
within its own rounding on tensor cores; there windows at both ends and where a tensor passes 2^31 elements are compared
with float64 too. For the gradient of the weight grad_output is zero but for such windows, so that what is read from a
wrong place shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from gpu.test_tensor_cores import assert_within
from large_problems import DW, DX, FORWARD, KINDS, LARGE, LIMIT, Large
from raw_ops import DIRECTIONS, Call, GradientCall, assert_same_bits, run_poisoned, words_of

PARTS = 8
UNIT = {torch.float16: 2.0**-11, torch.float32: 2.0**-24}
SUBNORMAL = {torch.float16: 2.0**-25, torch.float32: 2.0**-150}
TEMPORARY = 4 * 2**30  # bytes of parts, of their results and of differences

Range = tuple[int, int]


def random_tensor(size: tuple[int, ...], dtype: torch.dtype, channels_last: bool) -> torch.Tensor:
    """Filled piece by piece: no fill of the whole is asked to hold its offsets in 32 bits."""
    memory_format = torch.channels_last if channels_last and len(size) == 4 else torch.contiguous_format
    tensor = torch.empty(size, dtype=dtype, device="cuda", memory_format=memory_format)
    for piece in tensor.as_strided((tensor.numel(),), (1,)).split(2**28):
        piece.normal_()
    return tensor


def cut(tensor: torch.Tensor, axis: int, begin: int, end: int) -> torch.Tensor:
    """A copy of that part, with zeros where it reaches beyond the tensor."""
    size = list(tensor.shape)
    size[axis] = end - begin
    memory_format = torch.channels_last if tensor.stride(1) == 1 and tensor.shape[1] > 1 else torch.contiguous_format
    part = torch.zeros(size, dtype=tensor.dtype, device=tensor.device).contiguous(memory_format=memory_format)
    first, last = max(begin, 0), min(end, tensor.shape[axis])
    if first < last:
        part.narrow(axis, first - begin, last - first).copy_(tensor.narrow(axis, first, last - first))
    return part


@dataclasses.dataclass
class Problem:
    """Operands of a large problem; the one that its direction computes is not there."""

    large: Large
    x: torch.Tensor | None = None
    weight: torch.Tensor | None = None
    grad_output: torch.Tensor | None = None

    def call(self, op_h: int | None = None, padding_h: int | None = None, groups: int | None = None):
        """The call of these operands; where they are parts of the problem's, with other arguments."""
        large, case = self.large, self.large.case
        output_padding = (case.op[0] if op_h is None else op_h, case.op[1])
        padding = (case.p[0] if padding_h is None else padding_h, case.p[1])
        dtype, precision = KINDS[large.kind]
        empty = torch.empty((1, 1, 1, 1), dtype=dtype, device="cuda")
        call = Call(
            empty if self.x is None else self.x, empty if self.weight is None else self.weight, None, case.s, padding,
            output_padding, case.g if groups is None else groups, case.d, precision, large.channels_last,
        )  # fmt: skip
        if large.direction == FORWARD:
            return call
        other = self.weight if large.direction == DX else self.x
        return GradientCall(large.direction, self.grad_output, other, call, large.channels_last)

    def replace(self, **changes) -> Problem:
        return dataclasses.replace(self, **changes)


def make_problem(large: Large) -> Problem:
    torch.manual_seed(0)
    names = {"x": "x", "weight": "w", "grad_output": "y"}
    computed = dict(zip(DIRECTIONS, ("grad_output", "x", "weight"), strict=True))[large.direction]
    tensors = {
        name: random_tensor(large.sizes[size], large.dtype, large.channels_last and size != "w")
        for name, size in names.items()
        if name != computed
    }
    return Problem(large, **tensors)


def result_size(large: Large) -> tuple[int, ...]:
    return large.sizes[{FORWARD: "y", DX: "x", DW: "w"}[large.direction]]


def candidate(large: Large) -> tuple[int, dict]:
    """The number and the plan of the kernel to be forced."""
    names = {"x": large.sizes["x"], "weight": large.sizes["w"]}
    memory_format = torch.channels_last if large.channels_last else torch.contiguous_format
    dtype, precision = KINDS[large.kind]
    x, weight = (torch.empty(size, dtype=dtype, device="meta") for size in names.values())
    x = x.contiguous(memory_format=memory_format)
    call = Call(x, weight, None, **large.case.arguments, precision=precision, channels_last=large.channels_last)
    plans = call.candidates(torch.ops.convt_ext.device(torch.cuda.current_device()), large.direction)
    number = large.number(plans)
    return number, plans[number]


def axis_of_parts(large: Large) -> str:
    """What calls of parts differ in: images where there are many, else what a large weight has most of, else rows."""
    if large.is_over("w"):
        return "groups" if large.case.g > 1 else "channels"
    return "images" if large.case.n > PARTS else "rows"


def part_of_images(problem: Problem, begin: int, end: int):
    """The call of those images."""
    changes = {
        name: cut(getattr(problem, name), 0, begin, end)
        for name in ("x", "grad_output")
        if getattr(problem, name) is not None
    }
    return problem.replace(**changes).call()


def part_of_rows(problem: Problem, begin: int, end: int):
    """A call whose result has those rows of the problem's, and from which row on."""
    case = problem.large.case
    reach = case.d[0] * (case.k[0] - 1)
    if problem.large.direction == DX:  # beyond grad_output there are zeros, so the padding is none
        first, last = (row * case.s[0] - case.p[0] for row in (begin, end - 1))
        part = problem.replace(grad_output=cut(problem.grad_output, 2, first, last + reach + 1))
        return part.call(op_h=0, padding_h=0), 0
    first = max(0, -((reach - begin - case.p[0]) // case.s[0]))
    last = min(case.h, (end - 1 + case.p[0]) // case.s[0] + 1)
    row = begin + case.p[0] - first * case.s[0]
    more = max(0, row + end - begin - ((last - first - 1) * case.s[0] + reach + 1))
    part = problem.replace(x=cut(problem.x, 2, first, last))
    return part.call(op_h=more, padding_h=0), row


def parts(problem: Problem) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
    """Places in the result, and what a call of a part says belongs there."""
    large, case = problem.large, problem.large.case
    axis, everything = axis_of_parts(large), slice(None)
    size = result_size(large)
    if axis == "images":
        for begin, end in ranges(case.n):
            yield (slice(begin, end),), part_of_images(problem, begin, end).run()
    elif axis == "rows":
        for begin, end in ranges(size[2]):
            call, row = part_of_rows(problem, begin, end)
            yield (everything, everything, slice(begin, end)), call.run()[:, :, row : row + end - begin]
    elif axis == "groups":
        c_in, c_out = case.c_in // case.g, case.c_out // case.g
        for begin, end in ranges(case.g):
            ins, outs = (slice(begin * channels, end * channels) for channels in (c_in, c_out))
            part = problem.replace(
                x=None if problem.x is None else problem.x[:, ins].clone(),
                weight=problem.weight[ins].clone(),
                grad_output=None if problem.grad_output is None else problem.grad_output[:, outs].clone(),
            )
            yield (everything, outs if large.direction == FORWARD else ins), part.call(groups=end - begin).run()
    else:  # the channels that the result's own axis has, so each sum is whole
        channels = case.c_out if large.direction == FORWARD else case.c_in
        for begin, end in ranges(channels):
            here = slice(begin, end)
            if large.direction == FORWARD:
                part = problem.replace(weight=problem.weight[:, here].contiguous())
            elif large.direction == DX:
                part = problem.replace(weight=problem.weight[here].clone())
            else:
                part = problem.replace(x=cut(problem.x, 1, begin, end))
            yield (here,) if large.direction == DW else (everything, here), part.call().run()


def ranges(length: int) -> list[Range]:
    """Of about equal parts."""
    step = max(1, -(-length // PARTS))
    return [(begin, min(begin + step, length)) for begin in range(0, length, step)]


def place_of(offset: int, tensor: torch.Tensor) -> tuple[int, int]:
    """Image and row of the element at that offset in memory of a dense tensor."""
    index = [0, 0, 0, 0]
    for axis in sorted(range(4), key=tensor.stride, reverse=True):
        if tensor.shape[axis] > 1:
            index[axis], offset = divmod(offset, tensor.stride(axis))
    return index[0], index[2]


def places(tensors: list[torch.Tensor | None], rows: int) -> list[tuple[int, int]]:
    """Images and rows of a tensor of so many rows: the first, the last, and where one of `tensors` passes 2^31."""
    found = {(0, 0)}
    for tensor in tensors:
        if tensor is not None:
            found.add((tensor.shape[0] - 1, rows - 1))
            if tensor.numel() > LIMIT:
                image, row = place_of(LIMIT, tensor)
                found.add((image, row * rows // tensor.shape[2]))
    return sorted(found)


def exact_and_bound(calls: list) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of float64 results, and how far one that is rounded once may be from it: as in test_tensor_cores.py."""
    dtype = (calls[0].x if isinstance(calls[0], Call) else calls[0].grad_output).dtype
    exact, magnitude, terms = (
        sum(call.map(torch.Tensor.double).map(change).torch() for call in calls)
        for change in (lambda one: one, torch.Tensor.abs, torch.ones_like)
    )
    bound = magnitude * (terms + 4) * 2.0**-22
    return exact, bound + UNIT[dtype] * (exact.abs() + bound) + SUBNORMAL[dtype]


def assert_windows(problem: Problem, result: torch.Tensor, what: str) -> None:
    """A few rows of images at the ends and where a tensor passes 2^31 elements, by float64."""
    large, rows = problem.large, result.shape[2]
    for image, row in places([problem.x, problem.grad_output, result], rows):
        names = [name for name in ("x", "grad_output") if getattr(problem, name) is not None]
        alone = problem.replace(**{name: getattr(problem, name)[image : image + 1] for name in names})
        begin, end = max(0, row - 2), min(rows, row + 3)
        call, first = part_of_rows(alone, begin, end)
        if large.direction == DX:  # PyTorch wants the input for its size
            size = (1, large.case.c_in, end - begin, large.case.w)
            call = call.replace(call=call.call.replace(x=torch.ones(size, dtype=large.dtype, device="cuda")))
        exact, bound = (one[:, :, first : first + end - begin] for one in exact_and_bound([call]))
        where = f"image {image}, rows {begin}..{end}, {what}"
        assert_within(result[image : image + 1, :, begin:end], exact, bound, where)


def assert_parts(problem: Problem, result: torch.Tensor, what: str) -> None:
    is_exact = problem.large.kind.startswith("ieee") and problem.large.direction != DW
    for place, alone in parts(problem):
        got = result[place]
        assert got.shape == alone.shape, (place, what)
        if is_exact:
            assert_same_bits(got, alone, f"{place}, {what}")
        else:  # two orders of sums, each rounded once
            difference, largest = (got - alone).abs_().max().item(), alone.abs().max().item()
            assert difference <= 4 * UNIT[alone.dtype] * largest, (place, difference, largest, what)


def keep_windows(problem: Problem) -> list:
    """Leaves grad_output alone in windows, and returns the calls whose sums are the gradient of the weight then."""
    case, grad_output = problem.large.case, problem.grad_output
    assert problem.x is not None
    assert grad_output is not None
    rows, reach = grad_output.shape[2], case.d[0] * (case.k[0] - 1)
    windows: list[tuple[int, int, int]] = []
    for image, row in places([problem.x, grad_output], rows):
        begin, end = max(0, row - 4), min(rows, row + 5)
        if all(image != other or begin >= last or end <= first for other, first, last in windows):
            windows.append((image, begin, end))
    kept = [grad_output[image : image + 1, :, begin:end].clone() for image, begin, end in windows]
    for piece in grad_output.as_strided((grad_output.numel(),), (1,)).split(2**28):
        piece.zero_()
    calls = []
    for (image, begin, end), values in zip(windows, kept, strict=True):
        grad_output[image : image + 1, :, begin:end] = values
        first = max(0, -((reach - begin - case.p[0]) // case.s[0]))
        last = min(case.h, (end - 1 + case.p[0]) // case.s[0] + 1)
        start = first * case.s[0] - case.p[0]  # the row of grad_output that the part's first one is
        x = problem.x[image : image + 1, :, first:last].clone()
        part = cut(values, 2, start - begin, (last - 1) * case.s[0] - case.p[0] + reach + 1 - begin)
        call = problem.replace(x=x, grad_output=part).call(op_h=0, padding_h=0)
        weight = torch.ones(problem.large.sizes["w"], dtype=x.dtype, device="cuda")
        calls.append(call.replace(call=call.call.replace(weight=weight)))
    return calls


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("large", LARGE, ids=lambda large: large.name)
def test_family(room, large):
    if large.kind == "f16" and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("the engines are Hopper's")
    number, plan = candidate(large)
    room(large.num_bytes + plan["workspace_bytes"] + TEMPORARY)
    problem, what = make_problem(large), words_of(number, plan)
    by_windows = large.direction == DW and not large.is_over("w")
    calls = keep_windows(problem) if by_windows else []
    numel = torch.Size(result_size(large)).numel()
    result = run_poisoned(problem.call(), numel, number, plan["workspace_bytes"])
    assert tuple(result.shape) == result_size(large)
    if by_windows:
        assert_within(result, *exact_and_bound(calls), what)
        return
    assert_parts(problem, result, what)
    if large.kind == "f16" and not large.is_over("w"):
        assert_windows(problem, result, what)


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_gradient_of_the_bias(room, channels_last):
    """Ones and zeros: each channel has as many ones as it has."""
    room(2 * 2**32 + TEMPORARY)
    size = (3, 8, 10001, 9001)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    grad_output = torch.zeros(size, dtype=torch.float16, device="cuda").contiguous(memory_format=memory_format)
    assert grad_output.numel() > LIMIT
    ones = torch.randint(0, 2, (8, 300), generator=torch.Generator().manual_seed(0)).half().cuda()
    windows = {(0, 0), (1, 5000), *places([grad_output], size[2])}
    for image, row in windows:
        grad_output[image, :, row, -300:] = ones
    assert_same_bits(torch.ops.convt_ext.grad_bias(grad_output), len(windows) * ones.sum(1))
