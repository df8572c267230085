"""Training on the GPU: loops, mixed precision, CUDA graphs, streams, determinism; beside the original modules."""

from __future__ import annotations

import copy
import re
import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from cases import named
from gradients import leaves
from raw_ops import assert_same_bits
from served import SeenOps, switch, tf32
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import batch, generator, train

from convt_ext import conv_transpose2d as ours
from convt_ext import convert

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train.py"


@pytest.fixture(autouse=True)
def exact_pytorch():
    with tf32(False), switch(torch.backends.cudnn, "deterministic", True):
        yield


def pair_of_models(precision="exact"):
    """The original and the converted generator, with the same weights."""
    original = generator().cuda()
    return original, convert(copy.deepcopy(original), precision=precision)


def step_of(model, noise, images):
    loss = (model(noise) - images).square().mean()
    loss.backward()
    return loss


@pytest.mark.parametrize("precision", [None, "exact", "aten"])
def test_losses_are_the_originals(precision):
    original, mine = pair_of_models(precision)
    theirs, losses = train(original, 20, "cuda"), train(mine, 20, "cuda")
    assert losses[-1] < losses[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(theirs), rtol=1e-3, atol=1e-5)


def test_channels_last_training():
    original, mine = pair_of_models()
    mine = mine.to(memory_format=torch.channels_last)
    theirs, losses = train(original, 10, "cuda"), train(mine, 10, "cuda")
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(theirs), rtol=1e-3, atol=1e-5)
    layer = mine[3]
    assert layer.weight.grad.stride() == layer.weight.stride()


def test_a_hundred_steps_twice_give_the_same_bits():
    torch.use_deterministic_algorithms(True, warn_only=True)  # cuBLAS alone may warn
    try:
        runs = []
        for _ in range(2):
            model = convert(generator().cuda(), precision="exact")
            train(model, 100, "cuda")
            runs.append([parameter.detach().clone() for parameter in model.parameters()])
    finally:
        torch.use_deterministic_algorithms(False)
    for one, other in zip(*runs, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("precision", [None, "exact"])
def test_deterministic_mode_does_not_raise(precision):
    operands = leaves(named("k4s2p1"), torch.float32, "cuda")
    torch.use_deterministic_algorithms(True, warn_only=False)
    try:
        ours(*operands, 2, 1, precision=precision).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(tensor.grad is not None for tensor in operands)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("precision", [None, "exact"])
def test_autocast(dtype, precision):
    case = named("many_channels_in")
    x, weight, bias = leaves(case, torch.float32, "cuda")
    with torch.autocast("cuda", dtype=dtype), SeenOps() as seen:
        result = ours(x, weight, bias, **case.arguments, precision=precision)
    with torch.autocast("cuda", dtype=dtype):
        theirs = F.conv_transpose2d(x, weight, bias, **case.arguments)
    assert result.dtype is theirs.dtype is dtype
    assert ("convt_ext.forward.default" in seen.names) == (precision == "exact")
    found = torch.autograd.grad(result.float().square().sum(), (x, weight, bias))
    expected = torch.autograd.grad(theirs.float().square().sum(), (x, weight, bias))
    for one, other in zip((result, *found), (theirs, *expected), strict=True):
        assert one.dtype is other.dtype
        assert (one.float() - other.float()).norm() <= 0.02 * other.float().norm()
    assert found[1].dtype is torch.float32


def test_autocast_leaves_float64_alone():
    x, weight, bias = leaves(named("k4s2p1"), torch.float64, "cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        assert ours(x, weight, bias, 2, 1, precision="exact").dtype is torch.float64


def test_autocast_of_mixed_operands():
    """A half-precision input and float32 parameters, as between two layers under autocast."""
    x, weight, bias = leaves(named("k4s2p1"), torch.float32, "cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        result = ours(x.half(), weight, bias, 2, 1, precision="exact")
        assert result.dtype is torch.float16
        result.sum().backward()  # under autocast too, as some loops do
    assert weight.grad.dtype is torch.float32


@pytest.mark.parametrize("records", [True, False])
def test_autocast_casts_parameters_once(records):
    x, *parameters = leaves(named("k4s2p1"), torch.float32, "cuda")
    counts = []
    for call in (ours, F.conv_transpose2d):
        with torch.set_grad_enabled(records), torch.autocast("cuda", dtype=torch.float16), SeenOps() as seen:
            for _ in range(5):
                call(x.detach(), *parameters, 2, 1)
        counts.append(seen.names.count("aten._to_copy.default"))
    assert counts == [7, 7]


@pytest.mark.parametrize("precision", [None, "exact"])
def test_grad_scaler(precision):
    _, model = pair_of_models(precision)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    losses = []
    for number in range(30):
        noise, images = batch(number, device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(noise) - images).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert sum(losses[-5:]) < sum(losses[:5])
    assert scaler.get_scale() > 0


def test_grad_scaler_skips_a_step_with_an_infinite_gradient():
    _, model = pair_of_models()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    noise, images = batch(0, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = (model(noise) - images).square().mean()
    scaler.scale(loss * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**9
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


def test_cuda_graph_of_a_training_step():
    """Captured once and replayed on other data: the weights that eager steps give, bit for bit."""
    noise, images = batch(0, device="cuda")
    models = [convert(generator().cuda(), precision="exact") for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), 2e-3, capturable=True) for model in models]

    def step(index, noise, images):
        optimizers[index].zero_grad(set_to_none=True)
        step_of(models[index], noise, images)
        optimizers[index].step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in range(3):
            step(0, *batch(number, device="cuda"))
    torch.cuda.current_stream().wait_stream(stream)
    for number in range(3):
        step(1, *batch(number, device="cuda"))
    graph = torch.cuda.CUDAGraph()
    optimizers[0].zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step(0, noise, images)
    for number in range(3, 8):
        other_noise, other_images = batch(number, device="cuda")
        noise.copy_(other_noise)
        images.copy_(other_images)
        graph.replay()
        step(1, other_noise, other_images)
    torch.cuda.synchronize()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert_same_bits(one.detach(), other.detach())


def test_cuda_graph_of_gradients():
    operands = leaves(named("k4s2p1"), torch.float32, "cuda")
    gradient = lambda: torch.autograd.grad(ours(*operands, 2, 1, precision="exact").square().sum(), operands)  # noqa: E731
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        gradient()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradient()
    with torch.no_grad():
        for tensor in operands:
            tensor.mul_(-2)
    graph.replay()
    torch.cuda.synchronize()
    for one, other in zip(captured, gradient(), strict=True):
        assert_same_bits(one, other)


def test_side_stream():
    """Backward runs on the stream of its forward, after what that stream holds."""
    x, weight, bias = leaves(named("k4s2p1"), torch.float32, "cuda")
    expected = torch.autograd.grad(ours(x, weight, bias, 2, 1, precision="exact").square().sum(), (x, weight, bias))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(x)
        torch.cuda._sleep(20_000_000)
        late.copy_(x.detach())
        late.requires_grad_()
        found = torch.autograd.grad(
            ours(late, weight, bias, 2, 1, precision="exact").square().sum(), (late, weight, bias)
        )
    stream.synchronize()
    for one, other in zip(found, expected, strict=True):
        assert_same_bits(one, other)


def test_two_streams_at_once():
    x = [torch.randn(4, 32, 64, 64, device="cuda", requires_grad=True) for _ in range(2)]
    weight = torch.randn(32, 32, 4, 4, device="cuda", requires_grad=True)
    gradient = lambda one: torch.autograd.grad(  # noqa: E731
        ours(one, weight, stride=2, padding=1, precision="exact").square().sum(), (one, weight)
    )
    expected = [gradient(one) for one in x]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in x]
    found = [[], []]
    for _ in range(5):
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[index].append(gradient(x[index]))
    torch.cuda.synchronize()
    for index, right in enumerate(expected):
        for grads in found[index]:
            for one, other in zip(grads, right, strict=True):
                assert_same_bits(one, other)


@pytest.mark.needs_two_gpus
def test_another_gpu_than_the_current_one():
    operands = leaves(named("k4s2p1"), torch.float32, "cuda:1")
    found = torch.autograd.grad(ours(*operands, 2, 1, precision="exact").square().sum(), operands)
    here = leaves(named("k4s2p1"), torch.float32, "cuda:0")
    expected = torch.autograd.grad(ours(*here, 2, 1, precision="exact").square().sum(), here)
    assert torch.cuda.current_device() == 0
    for one, other in zip(found, expected, strict=True):
        assert one.device.index == 1
        assert_same_bits(one, other)


def test_checkpointing():
    _, model = pair_of_models()
    noise, images = batch(0, device="cuda")
    grads = []
    for run in (model, lambda noise: checkpoint(model, noise, use_reentrant=False)):
        model.zero_grad()
        step_of(run, noise, images)
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*grads, strict=True):
        assert_same_bits(one, other)


@pytest.mark.skipif(not EXAMPLE.exists(), reason="no checkout around the tests")
def test_example(capsys):
    runpy.run_path(str(EXAMPLE))["main"](["--steps", "12", "--batch", "8", "--width", "16", "--precision", "exact"])
    match = re.search(r"largest relative difference of a loss: (\S+)", capsys.readouterr().out)
    assert float(match[1]) < 1e-3


def test_gradients_accumulate():
    layer = convert(nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1).cuda(), precision="exact")
    x = torch.randn(2, 8, 5, 5, device="cuda")
    layer(x).sum().backward()
    once = layer.weight.grad.clone()
    layer(x).sum().backward()
    assert torch.equal(layer.weight.grad, 2 * once)
