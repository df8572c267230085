"""routing.py: which calls PyTorch's operator runs and why, and the errors of an explicit precision."""

from __future__ import annotations

import pytest
import torch
from cpu_kernels import needs_binary
from pretend_gpu import A100, TURING, decide, operands
from served import tf32
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from convt_ext.dispatch import planner, routing
from convt_ext.environment import _extension
from convt_ext.tuning import benchmark, files

pytestmark = pytest.mark.usefixtures("pretend_gpu")


def refuses(reason: routing.Reason, match: str, precision: str = "exact", dtype=torch.float32):
    with pytest.raises(RuntimeError, match=match):
        routing.refuse_if_requested(reason, dtype, precision, None, "tf32")


def ones(*size, device="cuda"):
    return torch.ones(size, device=device)


# Changes of a call of a small layer, and the reason for which PyTorch's operator runs it.
REASONS = {
    "cpu": (lambda x, w, b: operands(device="cpu"), {}, routing.NOT_CUDA),
    "weight on the cpu": (lambda x, w, b: (x, w.cpu(), b), {}, routing.MIXED),
    "bias on the cpu": (lambda x, w, b: (x, w, b.cpu()), {}, routing.MIXED),
    "weight of float64": (lambda x, w, b: (x, w.double()), {}, routing.MIXED),
    "bias of float64": (lambda x, w, b: (x, w, b.double()), {}, routing.MIXED),
    "complex": (lambda x, w, b: operands(torch.complex64), {}, routing.NO_DTYPE),
    "integers": (lambda x, w, b: operands(torch.int32), {}, routing.NO_DTYPE),
    "a list": (lambda x, w, b: ([1.0], w), {}, routing.NOT_PLAIN),
    "a number as bias": (lambda x, w, b: (x, w, 3), {}, routing.NOT_PLAIN),
    "an empty batch": (lambda x, w, b: (x.narrow(0, 0, 0), w), {}, routing.ARGUMENTS),
    "an empty result": (lambda x, w, b: (ones(2, 4, 1, 1), ones(4, 6, 2, 2)), {"stride": 1}, routing.ARGUMENTS),
    "stride 2^30": (lambda x, w, b: (ones(1, 1, 1, 1),) * 2, {"stride": 2**30, "padding": 0}, routing.TOO_LARGE),
    "stride 2^63 - 1": (lambda x, w, b: (ones(1, 1, 1, 1),) * 2, {"stride": 2**63 - 1, "padding": 0},
                        routing.TOO_LARGE),
    "stride 2^63": (lambda x, w, b: (ones(1, 1, 1, 1),) * 2, {"stride": 2**63, "padding": 0}, routing.ARGUMENTS),
    "padding 2^30": (lambda x, w, b: (ones(1, 1, 1, 1),) * 2, {"stride": 2**30, "padding": 2**30}, routing.ARGUMENTS),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_calls_that_are_pytorchs(name):
    """Also if calls that convt_ext runs are cached."""
    change, arguments, reason = REASONS[name]
    assert not isinstance(decide(*operands(), precision="exact"), routing.Reason)
    assert decide(*change(*operands()), **arguments, precision="exact") is reason


def test_function_modes_are_pytorchs_except_default_devices():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    arguments = operands()
    with Mode():
        assert decide(*arguments, precision="exact") is routing.MODE
    with torch.device("cuda"):
        assert not isinstance(decide(*arguments, precision="exact"), routing.Reason)


def test_disabled_by_the_environment(monkeypatch):
    monkeypatch.setattr(_extension, "DISABLED", True)
    assert decide(*operands(), precision="exact") is routing.DISABLED


def test_forward_mode_is_pytorchs():
    with forward_ad.dual_level():
        assert decide(*operands(), precision="exact") is routing.FORWARD_AD
    refuses(routing.FORWARD_AD, "dual level")


def test_transforms_are_pytorchs():
    found = []
    x, weight, bias = operands()

    def inside(one):
        found.append(decide(x, weight, bias, precision="exact"))
        return one

    torch.func.vmap(inside)(torch.zeros(2))
    assert found == [routing.TRANSFORM]
    refuses(routing.TRANSFORM, "outside of the transform")


@pytest.mark.parametrize(("exports", "reason"), [(False, routing.TRACING), (True, routing.ONNX)])
def test_tracing_is_pytorchs(monkeypatch, exports, reason):
    monkeypatch.setattr(routing, "_tracing_state", lambda: "a trace")
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: exports)
    assert decide(*operands(), precision="exact") is reason


def test_too_large_sizes_are_rejected():
    one = ones(1, 1, 1, 1)
    assert not isinstance(decide(one, one, stride=2**28, padding=0, precision="exact"), routing.Reason)
    refuses(routing.TOO_LARGE, "split the input")


def test_only_a_request_for_a_kernel_is_refused():
    """PyTorch's operator runs a precision of another dtype, and one that its switches select."""
    routing.refuse_if_requested(routing.TRANSFORM, torch.float16, None, "tf32", "f16")
    routing.refuse_if_requested(routing.TRANSFORM, torch.float32, None, "tf32", "tf32")
    routing.refuse_if_requested(routing.TRANSFORM, torch.float32, None, None, "tf32")
    for keywords, in_force in (
        ("tf32", None),
        (None, "tf32"),
        ("exact", None),
        (None, "convt_ext:"),
        ("tf32", "auto:"),
    ):
        with pytest.raises(RuntimeError, match="asks for a kernel of convt_ext"):
            routing.refuse_if_requested(routing.TRANSFORM, torch.float32, keywords, in_force, "ieee")


def test_a_gpu_without_code(monkeypatch, a100):
    monkeypatch.setattr(_extension, "unsupported_reason", lambda index: "install another wheel")
    decision = decide(*operands(), precision="exact")
    assert isinstance(decision, routing.Unavailable)
    refuses(decision, "install another wheel")
    # A missing binary has no effect on calls that PyTorch's operator runs anyway.
    assert decide(*operands(torch.float16)) is routing.TENSOR_CORES


def test_cached_decisions_do_not_apply_inside_of_transforms(monkeypatch):
    call = (*operands(), ((2, 2), (1, 1), (0, 0), 1, (1, 1)))
    assert routing.known(*call) is None
    decision = decide(*operands())
    assert routing.known(*call) is decision[3]
    with forward_ad.dual_level():
        assert routing.known(*call) is None
    with torch.backends.cudnn.flags(enabled=False):
        assert routing.known(*call) is None
    monkeypatch.setattr(_extension, "DISABLED", True)
    assert routing.known(*call) is None


# ---- tensor cores of GPUs other than Hopper, where only measurements select convt_ext


@needs_binary
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensor_cores_of_other_gpus_are_measured_where_switches_ask_for_it(dtype, a100, monkeypatch):
    """Without a measurement PyTorch's operator runs, because the estimates do not cover its times there."""
    monkeypatch.setattr(benchmark, "is_enabled", lambda: True)
    with tf32(True):
        chosen = decide(*operands(dtype))[3]
    assert chosen.benchmarks
    assert [chosen.left_to_torch(direction) for direction in range(3)] == [True] * 3
    monkeypatch.setattr(planner, "device_numbers", lambda index: TURING)
    routing.forget()
    assert (decide(*operands(dtype)) is routing.TENSOR_CORES) == (dtype is not torch.float32)


@needs_binary
def test_a_tuning_file_decides_on_tensor_cores_of_other_gpus(a100, monkeypatch):
    environment = files.Environment("NVIDIA A100", A100, "", "13.0", "2.11.0", torch.backends.cudnn.version(), "580")
    x, weight, bias = operands(torch.float16)
    problem = decide(x, weight, bias, backend="convt_ext")[3]
    asked = planner.Problem.of_call(x, weight, True, problem.arguments, A100)
    plan = planner.plan(asked)["candidates"][0]
    knobs = {name: value for name, value in plan.items() if name not in planner.OF_EVERY_PLAN}
    entry = files.Entry(plan["kernel"], knobs, 10.0, 20.0)
    monkeypatch.setattr(files, "_chosen", ("file.json", {environment: {files.key_of(asked, 0): entry}}))
    chosen = decide(x, weight, bias)[3]
    assert not chosen.left_to_torch(0)  # which the file is about
    assert chosen.left_to_torch(1)  # which it is not
    monkeypatch.setattr(files, "_chosen", ("file.json", {environment._replace(device=TURING): {}}))
    routing.forget()
    assert decide(x, weight, bias) is routing.TENSOR_CORES
