"""`explain`: reports which implementation runs a call, why, and the plan of the convt_ext kernel.

Uses routing.py (the decision of the call itself) and the planner in the binary. Launches nothing, so it also
explains CPU and meta tensors, as if they were on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .compile import mode
from .dispatch import autocast, planner, routing, scopes
from .dispatch import precision as precisions
from .dispatch.auto_dispatch import AutoDispatch
from .dispatch.directions import Directions
from .dispatch.request import encode_request, reason_of
from .environment.gpus import GPUS, words_of
from .epilogue.steps import following, name_of
from .tuning import benchmark, choices

# Reasons for which no precision class is defined.
_OF_TENSORS = (routing.NO_DTYPE, routing.NOT_STRIDED, routing.MIXED)


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`; `str()` returns a few lines, or the whole plan after ``explain(..., verbose=True)``.

    Attributes:
        served_by: "convt_ext" or "torch"; for tensors that are not on a GPU, the implementation on the planned GPU.
        reason: why, in one line.
        precision: the class: "ieee" (for "exact" too), "aten", "tf32x3", "tf32", "f16" or "bf16"; None if unknown.
        plan: the planner's answer (keys "problem", "device", "plan", "candidates", "phases_h", "phases_w",
            "floor_us", "torch_us"), or None if the binary is missing or cannot run on the GPU, or if there is
            nothing to plan.
        problem: description of the sizes.
        device: description of the GPU of the plan.
        gradients: the implementation of the gradient of "input" and of "weight" in a backward pass that computes both;
            empty if convt_ext cannot run the call.
        epilogue: a residual and an activation, and where they are computed; empty without them.
        on_gpu: whether the tensors are on a GPU; if not, PyTorch's operator runs the call regardless of `served_by`.
        dims: 1 to 3, of the operator.
    """

    served_by: str
    reason: str
    precision: str | None = None
    plan: dict[str, Any] | None = field(default=None, repr=False)
    problem: str = ""
    device: str = ""
    gradients: dict[str, str] = field(default_factory=dict)
    epilogue: str = ""
    on_gpu: bool = True
    verbose: bool = False
    dims: int = 2

    def __str__(self) -> str:
        return self.text(self.verbose)

    def text(self, verbose: bool = False) -> str:
        """Returns the text; with `verbose` also tile and memory of the plan, and every candidate."""
        lines = [f"conv_transpose{self.dims}d  {self.problem}" + (f", {self.precision}" if self.precision else "")]
        if not self.on_gpu:
            lines.append("runs              PyTorch's operator, because the tensors are not on a GPU; on a GPU:")
        lines.append(f"served by         {self.served_by}: {self.reason}")
        is_ours = self.served_by == "convt_ext"
        if self.plan is not None:
            plan, torch_us = self.plan["plan"], self.plan["torch_us"]
            line = f"{'kernel' if is_ours else 'convt_ext kernel':<18}{plan['kernel']}, estimated"
            theirs = f"; PyTorch about {torch_us:.1f} us" if torch_us > 0 else ""
            lines.append(f"{line} {plan['estimate_us']:.1f} us{theirs}")
        if self.gradients:
            lines.append("gradients         " + ", ".join(f"{name}: {who}" for name, who in self.gradients.items()))
        if self.epilogue:
            lines.append(f"epilogue          {self.epilogue}")
        if is_ours and mode.words():
            lines.append(f"compiled          {mode.words()}")
        if self.plan is not None and verbose:
            lines += _plan_lines(self.plan, self.device)
        return "\n".join(lines)


def explain(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    precision: str | None = None,
    backend: str | None = None,
    residual: Tensor | None = None,
    activation: Any = None,
    device: int | str | torch.device | Sequence[int] | None = None,
    verbose: bool = False,
) -> Explanation:
    """Explains which kernel runs `convt_ext.conv_transpose2d` with these arguments, and why.

    A weight with three or five dimensions is one of `conv_transpose1d` or `conv_transpose3d`.

    Accepts the arguments of the call and computes nothing. Tensors that are not on a GPU (PyTorch's operator runs
    them) are explained as if they were on the planned GPU, so meta tensors work.

    Args:
        device: the GPU to plan for: None (the GPU of the input, else an H200), a CUDA device, the name of a GPU
            ("H200", "H100", "A100", "A10", "L4", "RTX 4090", "RTX 5090"), or six ints (compute capability as 90,
            multiprocessors, shared memory per block and per multiprocessor in bytes, clock in MHz, copy bandwidth in
            GB/s).
        verbose: the text also contains the plan: its tile, blocks, memory, estimate and all candidates.

    Returns:
        An `Explanation` to print. Times of plans are the planner's estimates. If a measurement decided, the reason
        contains its times and their source: a benchmark in this process, or the name of a tuning file. If a benchmark
        of the forward pass is pending, the reason states after how many calls it runs.

    Raises:
        ValueError, RuntimeError: the errors of the call itself about precision and backend. Arguments that PyTorch
            rejects raise no error here: the reason states that PyTorch checks them.

    Example:
        >>> import torch, convt_ext
        >>> x, weight = torch.empty(1, 8, 5, 5, device="meta"), torch.empty(8, 4, 4, 4, device="meta")
        >>> convt_ext.explain(x, weight, stride=2, precision="exact").served_by
        'convt_ext'
    """
    call = (input, weight, bias, stride, padding, output_padding, groups, dilation)
    requested = encode_request(precision, backend)
    dims = {3: 1, 5: 3}.get(weight.dim(), 2) if isinstance(weight, Tensor) else 2
    decision = routing.route(*call, requested, dims=dims)
    if decision is routing.NOT_PLAIN:
        return Explanation("torch", decision.text)
    numbers, device_name = device_numbers(input, device)
    lowers = torch.is_autocast_enabled("cuda")
    if decision is routing.NOT_CUDA:
        decision = routing.op_call(*call, requested, numbers, lowers, dims)
    elif isinstance(decision, routing.Reason) and decision.remedy is not None:
        routing.refuse_eager(decision, input.dtype, requested, numbers)
    if decision is routing.NESTED:
        return Explanation("torch", decision.text)

    precision_class, plan = _plan(call, requested, numbers, lowers, dims)
    if isinstance(decision, routing.Reason):
        served_by = "torch"
        reason = decision.text if decision.remedy is None else f"{decision.text}: {decision.remedy}"
        gradients: dict[str, str] = {}
    else:
        served_by, reason, gradients = _served(decision[3], requested, precision_class)
        if plan is not None:  # a measurement may prefer another one to the planner's choice
            plan["plan"] = plan["candidates"][decision[3].candidates[0]]
    dtype = str(input.dtype).removeprefix("torch.")
    problem = f"{dtype} {tuple(input.shape)} on {input.device} with weight {tuple(weight.shape)}"
    steps = _epilogue_words(residual, activation, served_by, plan)
    on_gpu = input.is_cuda
    return Explanation(
        served_by, reason, precision_class, plan, problem, device_name, gradients, steps, on_gpu, verbose, dims
    )


def _epilogue_words(residual: Any, activation: Any, served_by: str, plan: dict[str, Any] | None) -> str:
    """Describes the epilogue, and where it is computed in a call that records no gradient."""
    entries, others = following(residual, activation)
    parts = []
    if entries:
        names = ", ".join(map(name_of, entries))
        if served_by != "convt_ext" or plan is None:
            parts.append(f"{names}: PyTorch's functions, one after the other")
        else:
            parts.append(f"{names}: {'in the kernel' if plan['plan']['fuses'] else 'in one pass over the result'}")
    parts += [f"{name_of(one)}: after the kernel" for one in others]
    return "; ".join(parts)


def _served(
    directions: Directions, requested: str | None, precision_class: str | None
) -> tuple[str, str, dict[str, str]]:
    """Returns the implementation of the forward pass, the reason, and the implementations of the gradients."""
    if not isinstance(directions, AutoDispatch):
        return "convt_ext", reason_of(requested, scopes.now().requested), {"input": "convt_ext", "weight": "convt_ext"}
    choice = directions.choice(choices.FORWARD)
    if choice.by_torch:
        more = "" if choice.why() is choices.NO_TILE else '; backend="convt_ext" runs convt_ext'
        reason = choice.why() + more
    else:
        cores = "no tensor cores" if precision_class in precisions.EXACT_CLASSES else "tensor cores"
        more = "" if choice.source == choices.ESTIMATED else f" ({choice.why()})"
        reason = f"PyTorch's switches select {cores}, and convt_ext is expected to be at least as fast{more}"
    calls = benchmark.calls_before(choice) if directions.benchmarks and choice.source == choices.ESTIMATED else None
    if calls is not None:
        reason += f"; benchmarked after {calls} calls, because torch.backends.cudnn.benchmark is on"
    forward, input, weight = ("torch" if directions.left_to_torch(one) else "convt_ext" for one in range(3))
    return forward, reason, {"input": input, "weight": weight}


def device_numbers(input: Tensor, device: Any) -> tuple[tuple[int, ...], str]:
    """Returns numbers of the GPU to plan for (only the first if the binary cannot run on it) and its description."""
    if isinstance(device, Sequence) and not isinstance(device, str):
        if len(device) != len(planner.H200):
            raise ValueError(f"device must be six ints, listed in `explain`, but got {len(device)}: {device!r}")
        return tuple(device), "the GPU described by device="
    if device is None and not input.is_cuda:
        return planner.H200, f"{words_of('H200')}, as if the tensors were on one"
    if isinstance(device, str) and device in GPUS:
        return GPUS[device], words_of(device)
    chosen = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or input.device)
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    return planner.device_numbers(index), torch.cuda.get_device_name(index)


def _plan(
    call: tuple[Any, Any, Any, Any, Any, Any, Any, Any],
    requested: str | None,
    numbers: tuple[int, ...],
    lowers: bool,
    dims: int,
) -> tuple[str | None, dict[str, Any] | None]:
    """Returns the requested precision class and the planner's answer; each is None if it does not exist.

    Also plans calls that PyTorch runs, to show what the convt_ext kernel would do.
    """
    dtype = autocast.dtype_of(call[0], "cuda") if lowers else call[0].dtype
    if dtype not in routing.DTYPES:
        return None, None
    selected = routing.selection(dtype, requested, planner.capability(numbers))
    precision_class = selected.served
    planned = encode_request(precisions.request_for(precision_class), "convt_ext")
    decision = routing.op_call(*call, planned, numbers, lowers, dims)
    if isinstance(decision, routing.Reason):
        return (None if decision in _OF_TENSORS else precision_class), None
    if len(numbers) == 1:
        return precision_class, None
    input, weight, bias, directions = decision
    problem = planner.Problem.of_call(input, weight, bias is not None, directions.arguments, numbers)
    try:
        return precision_class, planner.plan(problem)
    except ValueError:  # no kernel has a tile that fits; a call that requests a kernel raises this error
        if selected.backend == "convt_ext":
            raise
        return precision_class, None


# Keys of a plan that do not describe its tile.
_OF_EVERY_PLAN = planner.OF_EVERY_PLAN | {"threads"}


def _tile(plan: dict[str, Any]) -> str:
    """Returns the tile as the planner names it, "block_co 64, tile_h 4, staged", without flags that are False."""
    parts = []
    for name, value in plan.items():
        if name in _OF_EVERY_PLAN or value is False:
            continue
        parts.append(name if value is True else f"{name} {value}")
    return ", ".join(parts)


def _plan_lines(answer: dict[str, Any], device: str) -> list[str]:
    """Returns the plan as text: its estimate, the floor, and all candidates."""
    plan = answer["plan"]
    # The planner computes the floor for arithmetic without tensor cores.
    floor = "floor" if plan["requested_precision"] in precisions.EXACT_CLASSES else "floor without tensor cores"
    lines = [
        f"planned for       {device}",
        f"engine            {plan['engine']}, {plan['requested_precision']} runs as {plan['served_precision']}",
        f"tile              {_tile(plan)}",
        f"blocks            {plan['num_blocks']} of {plan['threads']} threads, {plan['shared_bytes']} bytes shared",
        f"memory            {plan['workspace_bytes']} bytes besides the result",
        f"estimate          {plan['estimate_us']:.1f} us (arithmetic {plan['compute_us']:.1f}, "
        f"memory {plan['memory_us']:.1f}); {floor} {answer['floor_us']:.1f} us",
        f"{'candidates':<14}{'estimate us':>12}{'arithmetic':>12}{'memory':>10}{'blocks':>10}  kernel",
    ]
    return lines + [
        f"{one['estimate_us']:26.1f}{one['compute_us']:12.1f}{one['memory_us']:10.1f}{one['num_blocks']:10d}  "
        f"{one['kernel']} ({_tile(one)})"
        for one in answer["candidates"]
    ]
