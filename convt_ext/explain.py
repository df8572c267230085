"""`explain`: who serves a call, why, and the plan of our kernel as text.

Asks routing.py (the same decision as the call itself) and the planner inside the binary. Launches
nothing, so it also explains CPU and meta tensors, by planning for an H200.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from . import ops, routing
from . import precision as precisions
from .arguments import legal_output_size, pair
from .geometry import result_is_channels_last

# compute capability, multiprocessors, shared memory per block and per multiprocessor (bytes), MHz, copy GB/s
H200 = (90, 132, 232448, 233472, 1890, 4300)

_DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


@dataclass(frozen=True)
class Explanation:
    """What `explain` found; `str()` gives it as text.

    Attributes:
        served_by: "convt_ext" or "torch".
        reason: why, in one line.
        precision: the class the call asks for: "ieee", "aten", "tf32x3", "tf32", "f16" or "bf16"; None if unknown.
        plan: the planner's answer (keys "problem", "device", "plan", "candidates", "phases_h",
            "phases_w", "floor_us"), or None where there is no binary or nothing to plan.
        problem: sizes in words.
        device: the GPU that the plan is for, in words.
    """

    served_by: str
    reason: str
    precision: str | None = None
    plan: dict[str, Any] | None = field(default=None, repr=False)
    problem: str = ""
    device: str = ""

    def __str__(self) -> str:
        lines = [f"conv_transpose2d  {self.problem}", f"served by         {self.served_by}: {self.reason}"]
        if self.precision is not None:
            lines.append(f"precision         {self.precision}")
        if self.plan is not None:
            lines += _plan_lines(self.plan, self.device, chosen=self.served_by == "convt_ext")
        return "\n".join(lines)


def explain(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride=1,
    padding=0,
    output_padding=0,
    groups: int = 1,
    dilation=1,
    *,
    precision: str | None = None,
    device: int | str | torch.device | Sequence[int] | None = None,
) -> Explanation:
    """Which kernel would serve `convt_ext.conv_transpose2d` with these arguments, and why.

    Takes the call's arguments, and nothing is computed: values do not matter, and CPU or meta tensors do.

    Args:
        device: what to plan for: None (the input's GPU, or an H200 when the input is on none), a CUDA
            device, or six ints (compute capability as 90, multiprocessors, shared memory per block and
            per multiprocessor in bytes, clock in MHz, copy bandwidth in GB/s).

    Returns:
        An `Explanation`; print it. Times in it are the planner's estimates, not measurements.

    Raises:
        ValueError, RuntimeError: what the call itself raises because of `precision`. Arguments that
            PyTorch rejects are not an error here: the reason says that PyTorch judges them.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.empty(1, 8, 5, 5, device="meta"), torch.empty(8, 4, 4, 4, device="meta")
        >>> convt_ext.explain(x, weight, stride=2).served_by
        'torch'
    """
    decision = routing.route(input, weight, bias, stride, padding, output_padding, groups, dilation, precision)
    if isinstance(decision, routing.Reason):
        if decision.remedy is not None:
            routing.refuse_when_explicit(decision, input.dtype, precision)
        served_by = "torch"
        reason = decision.text if decision.remedy is None else f"{decision.text}: {decision.remedy}"
    else:
        served_by, reason = "convt_ext", _why_ours(precision)
    if not (isinstance(input, Tensor) and isinstance(weight, Tensor) and isinstance(bias, (Tensor, type(None)))):
        return Explanation(served_by, reason)
    numbers, device_name = _device_numbers(input, device)
    served, plan = _plan(input, weight, bias, stride, padding, output_padding, groups, dilation, precision, numbers)
    problem = f"{_tensor_words(input)} with weight {tuple(weight.shape)}"
    return Explanation(served_by, reason, served, plan, problem, device_name)


def _why_ours(precision: str | None) -> str:
    if precision is not None:
        return f"precision={precision!r} asks for it"
    word = precisions.requested(None)
    if word is not None:
        return f"use_precision({word!r}) is active"
    return "PyTorch's switches ask for no tensor cores, and our exact kernels serve that"


def _device_numbers(input: Tensor, device: Any) -> tuple[list[int] | None, str]:
    """The six numbers of the GPU to plan for (None without a binary), and its name."""
    if isinstance(device, Sequence) and not isinstance(device, str):
        return list(device), "the device given"
    if device is None and not input.is_cuda:
        return list(H200), "an NVIDIA H200 (assumed: the tensors are on no GPU)"
    chosen = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or input.device)
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    numbers = None if ops.device is None else list(ops.device(index))
    return numbers, torch.cuda.get_device_name(index)


def _plan(
    input, weight, bias, stride, padding, output_padding, groups, dilation, precision, numbers
) -> tuple[str | None, dict[str, Any] | None]:
    """The precision class, and the planner's answer for a legal problem of our dtypes; None for what is missing."""
    dtype = input.dtype
    if dtype not in _DTYPE_CODES or input.layout is not torch.strided or weight.layout is not torch.strided:
        return None, None
    word = precisions.requested(precision)
    served = None if word is None else precisions.explicit_class(dtype, word, precision is not None)
    if served is None:
        served = precisions.class_by_switches(dtype, divmod(H200[0] if numbers is None else numbers[0], 10))
    pairs = [pair(value) for value in (stride, padding, output_padding, dilation)]
    if None in pairs or type(groups) is not int or input.dim() not in (3, 4) or ops.plan is None or numbers is None:
        return served, None
    stride, padding, output_padding, dilation = pairs
    if input.dim() == 3:
        input = input.unsqueeze(0)
    bias_size = None if bias is None else bias.shape
    size = legal_output_size(
        input.shape, weight.shape, bias_size, stride, padding, output_padding, groups, dilation
    )  # fmt: skip
    if size is None:
        return served, None
    channels_last = result_is_channels_last(
        input.shape, input.stride(), weight.shape, weight.stride(), dtype, stride, output_padding,
        torch.backends.cudnn.enabled,
    )  # fmt: skip
    answer = ops.plan(
        input.shape, input.stride(), weight.shape, weight.stride(), bias is not None, stride, padding, output_padding,
        groups, dilation, _DTYPE_CODES[dtype], precisions.CODES.get(served, 0), channels_last, numbers,
    )  # fmt: skip
    return served, json.loads(answer)


def _tensor_words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} on {tensor.device}"


def _plan_lines(answer: dict[str, Any], device: str, chosen: bool) -> list[str]:
    """The plan as text: the choice, its estimate against the floor, and the candidates it was chosen from."""
    plan = answer["plan"]
    tile = f"{plan['tile_n']}x{plan['tile_h']}x{plan['tile_w']} positions x {plan['block_co']} channels"
    lines = [
        f"planned for       {device}",
        f"{'kernel' if chosen else 'ours would be':<18}{plan['kernel']} ({plan['engine']} engine), "
        f"{plan['requested_precision']} served as {plan['served_precision']}",
        f"tile              {tile}, {plan['phases_w']} phases along W, {plan['threads']} threads",
        f"blocks            {plan['num_blocks']}, {plan['stages']} stages, {plan['shared_bytes']} bytes shared",
        f"estimate          {plan['estimate_us']:.1f} us (arithmetic {plan['compute_us']:.1f}, "
        f"memory {plan['memory_us']:.1f}); floor {answer['floor_us']:.1f} us",
        "candidates        estimate us  arithmetic  memory  blocks",
    ]
    for candidate in sorted(answer["candidates"], key=lambda one: one["estimate_us"]):
        tile = f"{candidate['block_co']}x{candidate['tile_n']}x{candidate['tile_h']}x{candidate['tile_w']}"
        lines.append(
            f"  {candidate['estimate_us']:12.1f} {candidate['compute_us']:11.1f} {candidate['memory_us']:7.1f} "
            f"{candidate['num_blocks']:7d}  {candidate['kernel']} tile {tile}"
        )
    return lines
