"""Directions that are left to PyTorch's operator: any mixture is one gradient, as PyTorch has it.

Which directions those are is set here, instead of by estimates: so no layer must be found that is slower at them.
"""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from cases import each_case, named
from gradients import assert_within_budget, leaves, ramp
from served import SeenOps, allow_tf32, switch

from convt_ext import conv_transpose2d as ours
from convt_ext.dispatch import planner, routing

NAMES = ("forward", "grad_input", "grad_weight")
MIXTURES = [set(chosen) for length in range(4) for chosen in itertools.combinations(range(3), length)]
# dtype, TF32, and how far two results may be apart in the 2-norm: each is rounded as its class says.
CLASSES = {
    "ieee": (torch.float32, False, 1e-5), "tf32": (torch.float32, True, 2e-3), "f64": (torch.float64, False, 1e-13),
    "f16": (torch.float16, False, 4e-3), "bf16": (torch.bfloat16, False, 3e-2),
}  # fmt: skip


@pytest.fixture(params=MIXTURES, ids=lambda left: "+".join(NAMES[one] for one in sorted(left)) or "nothing")
def left(request, monkeypatch):
    """The directions at which PyTorch is now known to be faster."""
    found = planner.BestPlan(estimate_us=300.0, torch_us=400.0, packed_bytes=0)
    slower = found._replace(torch_us=200.0)
    monkeypatch.setattr(
        planner, "best_plan", lambda problem, direction=0, preferred=0: slower if direction in request.param else found
    )
    routing.forget()
    yield request.param
    routing.forget()


def step(call, operands, case):
    """The result and all gradients."""
    result = call(*operands, **case.arguments)
    return result, *torch.autograd.grad(result, operands, ramp(result))


def assert_like(found, expected, tolerance):
    for name, mine, theirs in zip(("result", "input", "weight", "bias"), found, expected, strict=True):
        assert mine.dtype is theirs.dtype, name
        assert mine.shape == theirs.shape, name
        assert mine.stride() == theirs.stride(), (name, mine.stride(), theirs.stride())
        assert (mine.double() - theirs.double()).norm() <= tolerance * theirs.double().norm(), name


def served(left) -> set[str]:
    """The ops of ours that a step runs: PyTorch's own call where all is left to it."""
    if left == {0, 1, 2}:
        return set()
    return {f"convt_ext.{name}.default" for place, name in enumerate(NAMES) if place not in left} | {
        "convt_ext.grad_bias.default"
    }


@pytest.mark.parametrize("kind", CLASSES)
@each_case("k4s2p1", "channels_last", "kb75")
def test_every_mixture(left, case, kind):
    dtype, on, tolerance = CLASSES[kind]
    if kind in ("tf32", "f16", "bf16") and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("by default PyTorch's operator serves these classes on all GPUs but Hopper's")
    with allow_tf32(on), switch(torch.backends.cudnn, "deterministic", True):
        operands = leaves(case, dtype, "cuda")
        with SeenOps() as seen:
            found = step(ours, operands, case)
        assert {name for name in seen.names if name.startswith("convt_ext.")} == served(left)
        expected = step(F.conv_transpose2d, operands, case)
        assert_like(found, expected, tolerance)
        found = step(ours, operands, case)  # recorded by PyTorch's node, as nobody looks
        assert (found[0].grad_fn.name() == "ConvolutionOverrideableBackward0") == (left != {0, 1, 2})
        assert_like(found, expected, tolerance)


@pytest.mark.parametrize("kind", CLASSES)
@each_case("k4s2p1", "channels_last", "kb75")
def test_every_mixture_compiled(left, case, kind):
    """A compiled program decides each direction when it runs."""
    dtype, on, tolerance = CLASSES[kind]
    torch._dynamo.reset()
    with allow_tf32(on), switch(torch.backends.cudnn, "deterministic", True):
        operands = leaves(case, dtype, "cuda")
        compiled = torch.compile(lambda *tensors, **named: ours(*tensors, **named), backend="aot_eager", fullgraph=True)
        found = step(compiled, operands, case)
        assert_like(found, step(F.conv_transpose2d, operands, case), tolerance)
    torch._dynamo.reset()


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
@each_case("k4s2p1", "channels_last", "kb75", "odd_sizes")
def test_raw_gradients_of_a_result_of_pytorchs(case, channels_last):
    with allow_tf32(False):
        operands = leaves(case, torch.float32, "cuda")
        result = F.conv_transpose2d(*operands, **case.arguments)
        grad_output = ramp(result)
        x, weight, _ = (tensor.detach() for tensor in operands)
        arguments = (case.s, case.p, case.op, case.g, case.d, 0, channels_last)
        found = (
            torch.ops.convt_ext.grad_input(grad_output, weight, *arguments),
            torch.ops.convt_ext.grad_weight(grad_output, x, *arguments),
            torch.ops.convt_ext.grad_bias(grad_output),
        )
    assert_within_budget(found, case, operands)


def test_a_layer_that_nothing_serves_faster_is_left_as_it_is():
    """Without the fixture: whatever the estimates say, the result and its gradients are PyTorch's to its rounding."""
    case = named("many_channels_in")  # a long sum for few outputs, of which PyTorch's forward has the shorter estimate
    with allow_tf32(False):
        operands = leaves(case, torch.float32, "cuda")
        assert_like(step(ours, operands, case), step(F.conv_transpose2d, operands, case), 1e-5)
