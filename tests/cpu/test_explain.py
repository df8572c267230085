"""explain.py: reports the implementation, the reason and the plan, on any machine."""

from __future__ import annotations

import re

import pytest
import torch
from cases import each_case, named
from cpu_kernels import needs_binary
from pretend_gpu import A100, TURING
from served import switch
from torch.autograd import forward_ad

from convt_ext import Explanation, explain, use_precision
from convt_ext.dispatch import ops, planner, routing
from convt_ext.tuning.choices import GRAD_WEIGHT

PLAN_KEYS = {
    "kernel", "engine", "family", "fuses", "requested_precision", "served_precision", "threads", "shared_bytes",
    "num_blocks", "compute_us", "memory_us", "estimate_us",
}  # fmt: skip
SIMT_KEYS = {"block_co", "tile_n", "tile_h", "tile_w", "phases_w", "stages"}


def meta(dtype=torch.float32, device="meta"):
    return torch.empty(8, 64, 32, 32, dtype=dtype, device=device), torch.empty(64, 64, 3, 3, dtype=dtype, device=device)


on_tensor_cores = pytest.mark.parametrize(
    ("dtype", "wanted"), [(torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.float32, "tf32")]
)


@pytest.fixture
def in_float32(monkeypatch):
    """PyTorch's switches ask for float32, and no decision is known."""
    monkeypatch.setattr("convt_ext.dispatch.precision.class_by_switches", lambda *_: "ieee")
    routing.forget()
    yield
    routing.forget()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_on_no_gpu_are_explained_for_an_h200(device):
    found = explain(*meta(device=device), precision="exact")
    assert isinstance(found, Explanation)
    assert (found.served_by, found.precision) == ("convt_ext", "ieee")
    assert "as if the tensors were on one" in found.device
    first, second, third, *others = str(found).splitlines()
    assert first.endswith("with weight (64, 64, 3, 3), ieee")
    assert "PyTorch's operator, because the tensors are not on a GPU" in second
    assert third == "served by         convt_ext: precision='exact' asks for it"
    assert len(others) <= 2


@on_tensor_cores
def test_tensor_cores(dtype, wanted, monkeypatch):
    monkeypatch.setattr("convt_ext.dispatch.precision.class_by_switches", lambda *_: wanted)
    found = explain(*meta(dtype), device=A100)
    assert (found.served_by, found.precision) == ("torch", wanted)
    assert "Hopper" in found.reason
    assert (found.plan is None) == (ops.plan is None)


@needs_binary
@on_tensor_cores
def test_tensor_cores_of_hopper(dtype, wanted, monkeypatch):
    monkeypatch.setattr("convt_ext.dispatch.precision.class_by_switches", lambda *_: wanted)
    x = torch.empty(8, 32, 512, 1024, dtype=dtype, device="meta")
    found = explain(x, torch.empty(32, 32, 3, 3, dtype=dtype, device="meta"))
    assert (found.served_by, found.precision) == ("convt_ext", wanted)
    assert "select tensor cores" in found.reason
    assert f"_{wanted}_" in found.plan["plan"]["kernel"]
    engines = {candidate["engine"] for candidate in found.plan["candidates"]}
    assert {"simt", "nhwc_sm90a"} <= engines
    assert all(candidate["kernel"] in found.text(verbose=True) for candidate in found.plan["candidates"])


def test_context_and_switches_are_the_reason(in_float32):
    with use_precision("aten"):
        found = explain(*meta())
    assert (found.precision, found.reason) == ("aten", "flags(precision='aten') asks for it")
    x, weight, bias = named("k4s2p1").tensors()
    found = explain(x[0], weight, bias, [2], (1, 1))
    assert found.served_by == "convt_ext"
    assert "switches" in found.reason


@needs_binary
def test_a_slower_kernel_is_the_reason(in_float32):
    kb69 = torch.empty(64, 64, 128, 256, device="meta"), torch.empty(64, 128, 3, 5, device="meta")
    found = explain(*kb69)
    assert (found.served_by, found.precision) == ("torch", "ieee")
    ours_us, torch_us = found.plan["plan"]["estimate_us"], found.plan["torch_us"]
    assert 0 < torch_us < ours_us
    assert found.reason == (
        f'estimated {ours_us:.0f} us for convt_ext, PyTorch about {torch_us:.0f} us; backend="convt_ext" runs convt_ext'
    )
    assert f"served by         torch: {found.reason}" in str(found)
    assert "convt_ext kernel" in str(found)
    assert explain(*kb69, precision="exact").served_by == "convt_ext"
    with use_precision("exact"):
        assert explain(*kb69).served_by == "convt_ext"


@needs_binary
def test_a_benchmark_that_is_still_to_come_is_part_of_the_reason(in_float32):
    operands = torch.empty(3, 8, 5, 7, device="meta"), torch.empty(8, 4, 3, 3, device="meta")
    assert "benchmark" not in explain(*operands).reason
    with switch(torch.backends.cudnn, "benchmark", True):
        found = explain(*operands)
        assert "benchmark" not in explain(*operands, precision="exact").reason
    calls = re.search(r"; benchmarked after (\d+) calls, because torch.backends.cudnn.benchmark is on$", found.reason)
    assert calls is not None
    assert int(calls[1]) > 600


@needs_binary
def test_each_gradient_has_its_own_choice(in_float32, monkeypatch):
    real = planner.best_plan

    def best_plan(problem, direction):
        torch_us = 500.0 if direction == GRAD_WEIGHT else 2000.0
        return real(problem, direction)._replace(estimate_us=1000.0, torch_us=torch_us)

    monkeypatch.setattr(planner, "best_plan", best_plan)
    found = explain(*meta())
    assert found.gradients == {"input": "convt_ext", "weight": "torch"}
    assert "gradients         input: convt_ext, weight: torch" in str(found)
    assert explain(*meta(), precision="exact").gradients == {"input": "convt_ext", "weight": "convt_ext"}


def test_without_a_binary_nothing_is_compared(in_float32, monkeypatch):
    monkeypatch.setattr(ops, "plan", None)
    found = explain(torch.empty(65, 64, 128, 256, device="meta"), torch.empty(64, 128, 3, 5, device="meta"))
    assert (found.served_by, found.plan) == ("convt_ext", None)


@needs_binary
@each_case()
def test_plan_of_every_case(case, in_float32):
    # Kernels run small problems by default, as the GPU tests rely on: the launch of PyTorch's call alone is slower.
    is_small = case.name != "many_channels_in"
    assert not is_small or explain(*case.tensors(), **case.arguments).served_by == "convt_ext"
    found = explain(*case.tensors(), **case.arguments, precision="exact")
    assert found.served_by == "convt_ext"
    of_simt = SIMT_KEYS if found.plan["plan"]["family"] == "simt" else set()
    assert set(found.plan["plan"]) >= PLAN_KEYS | of_simt
    assert found.plan["plan"] in found.plan["candidates"]
    assert found.plan["floor_us"] >= 0
    assert found.plan["plan"]["kernel"] in str(found)
    assert "candidates" not in str(found)
    text = found.text(verbose=True)
    assert text == str(explain(*case.tensors(), **case.arguments, precision="exact", verbose=True))
    assert "candidates" in text
    assert "floor" in text


@needs_binary
def test_a_stricter_class_is_reported():
    found = explain(*meta(), precision="tf32x3", device=A100)  # without the engines of Hopper
    assert found.plan["plan"]["requested_precision"] == "tf32x3"
    assert found.plan["plan"]["served_precision"] == "ieee"
    assert "tf32x3 runs as ieee" in found.text(verbose=True)


@needs_binary
@pytest.mark.parametrize("word", ["tf32", "half"])
@pytest.mark.parametrize("number", [80, 86, 89, 100, 120])
def test_other_gpus_have_tensor_cores_on_request(number, word):
    dtype = torch.float32 if word == "tf32" else torch.bfloat16
    x = torch.empty(4, 128, 64, 64, dtype=dtype, device="meta")
    weight = torch.empty(128, 64, 4, 4, dtype=dtype, device="meta")
    asked = {"stride": 2, "padding": 1, "precision": word, "backend": "convt_ext"}
    found = explain(x, weight, **asked, device=(number, 108, 101376, 102400, 1410, 1400))
    assert (found.served_by, found.plan["plan"]["engine"]) == ("convt_ext", "portable")
    assert found.plan["plan"]["served_precision"] == word
    turing = explain(x, weight, **asked, device=TURING)
    assert turing.plan["plan"]["served_precision"] == "ieee"


def test_calls_that_pytorchs_operator_checks():
    x, weight = meta()
    for found in (
        explain(x, weight, stride=(2, 2, 2), precision="exact"),
        explain(x[:0], weight, precision="exact"),
        explain(x, weight, groups=3, precision="exact"),
        explain(x, weight.double(), precision="exact"),
        explain(x.to(torch.complex64), weight.to(torch.complex64), precision="exact"),
        explain(x, None),
        explain(3, weight),
        explain(x, weight, [0.0]),
    ):
        assert found.served_by == "torch"
        assert found.reason
        assert found.plan is None
        assert str(found)


def test_gpu_tensors(pretend_gpu):
    x, weight = meta(device="cuda")
    found = explain(x, weight, precision="exact")
    assert (found.served_by, found.device) == ("convt_ext", "NVIDIA H200")
    weight.requires_grad_()
    assert explain(x, weight, precision="exact").served_by == "convt_ext"
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="dual level"):
        explain(x, weight, precision="exact")


@needs_binary
def test_measured_plans_are_reported():
    """A layer of the package's tuning file, and the layer with one more image, which is not in the file."""
    sizes = ((2, 1024, 2, 2), (1024, 512, 4, 4))
    x, weight = (torch.empty(size, dtype=torch.bfloat16, device="meta") for size in sizes)
    found, other = (explain(one, weight, stride=2, padding=1) for one in (x[:1], x))
    assert "in shipped.json: " in found.reason
    assert "in shipped.json" not in other.reason
    assert f"\nestimate          {other.plan['plan']['estimate_us']:.1f} us" in other.text(verbose=True)
    assert found.plan["plan"] in found.plan["candidates"]
    assert other.plan["plan"] == other.plan["candidates"][0]


# ---- random layers
